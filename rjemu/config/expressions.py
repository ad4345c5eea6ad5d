"""Whole-number expressions over loop variables, as link patterns and `where_expr` have them: `j*9+k`, `i/4`, `i != j`.

C's operators and precedence; division and remainder round towards zero; truth is 1 or 0; the right side of && and ||
is evaluated only where it decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MAX_TOKENS = 128
"""Of an expression: it is parsed and evaluated by recursion."""

_TOKEN = re.compile(r"\s*(?:(\d{1,10})(?!\d)|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[-+*/%<>!()]))")

Expression = Callable[[Mapping[str, int]], int]


def parse(text: str) -> Expression:
    """The function of the variables that an expression is. ValueError for what is none; the function raises ValueError for
    an unknown variable or a division by zero."""
    parser = _Parser(text)
    result = parser.expression(0)
    if parser.token is not None:
        raise parser.unexpected()
    return result


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (0, lambda a, b: int(bool(a or b))),
    "&&": (1, lambda a, b: int(bool(a and b))),
    "==": (2, lambda a, b: int(a == b)),
    "!=": (2, lambda a, b: int(a != b)),
    "<": (3, lambda a, b: int(a < b)),
    ">": (3, lambda a, b: int(a > b)),
    "<=": (3, lambda a, b: int(a <= b)),
    ">=": (3, lambda a, b: int(a >= b)),
    "+": (4, lambda a, b: a + b),
    "-": (4, lambda a, b: a - b),
    "*": (5, lambda a, b: a * b),
    "/": (5, _divide),
    "%": (5, lambda a, b: a - b * _divide(a, b)),
}
"""Binary operators: how tightly they bind, and what they compute."""


class _Parser:
    """Precedence climbing: operators as tight as asked for, or tighter, extend an expression; looser ones end it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens = 0
        self.token: str | None = None
        self._advance()

    def unexpected(self) -> ValueError:
        return ValueError(f"{self.token!r} is not expected in the expression {self._text!r}")

    def expression(self, loosest: int) -> Expression:
        """An expression of operands and of operators that bind at least so tightly."""
        left = self._operand()
        while self.token in _OPERATORS and _OPERATORS[self.token][0] >= loosest:
            name = self.token
            level, operator = _OPERATORS[name]
            self._advance()
            left = self._applied(name, operator, left, self.expression(level + 1))
        return left

    def _applied(self, name: str, operator: Callable[[int, int], int], left: Expression, right: Expression) -> Expression:
        text = self._text

        def apply(variables: Mapping[str, int]) -> int:
            a = left(variables)
            if name in ("&&", "||") and bool(a) == (name == "||"):
                return int(bool(a))
            b = right(variables)
            if name in "/%" and b == 0:
                raise ValueError(f"division by zero in the expression {text!r}")
            return operator(a, b)

        return apply

    def _operand(self) -> Expression:
        token = self.token
        if token is None:
            raise ValueError(f"the expression {self._text!r} is not complete")
        if token.isdigit():
            value = int(token)
            self._advance()
            return lambda variables: value
        if token.isidentifier():
            self._advance()
            return self._variable(token)
        if token not in ("-", "!", "("):
            raise self.unexpected()
        self._advance()
        if token == "-":
            operand = self._operand()
            return lambda variables: -operand(variables)
        if token == "!":
            operand = self._operand()
            return lambda variables: int(not operand(variables))
        inside = self.expression(0)
        if self.token != ")":
            raise ValueError(f"a parenthesis is not closed in the expression {self._text!r}")
        self._advance()
        return inside

    def _variable(self, name: str) -> Expression:
        text = self._text

        def look_up(variables: Mapping[str, int]) -> int:
            if name not in variables:
                raise ValueError(f"no variable {name!r} in the expression {text!r}")
            return variables[name]

        return look_up

    def _advance(self) -> None:
        if not self._text[self._at :].strip():
            self.token = None
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"{self._text[self._at :].strip()[0]!r} is not expected in the expression {self._text!r}")
        self._tokens += 1
        if self._tokens > MAX_TOKENS:
            raise ValueError(f"the expression {self._text[:40]!r}... has more than {MAX_TOKENS} parts")
        self._at = match.end()
        self.token = match[match.lastindex or 0]
