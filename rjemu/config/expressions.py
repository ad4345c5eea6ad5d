"""Whole-number expressions over loop variables, as link patterns and `where_expr` have them: `j*9+k`, `i/4`, `i != j`.

C's operators and precedence; division and remainder round towards zero; truth is 1 or 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[-+*/%<>!()]))")
_MAX_DEPTH = 64


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": _divide, "%": lambda a, b: a - b * _divide(a, b)},
)
"""Operators by precedence, the loosest first."""

Expression = Callable[[Mapping[str, int]], int]


def parse(text: str) -> Expression:
    """The function of the variables that an expression is. ValueError for what is none; the function raises ValueError for
    an unknown variable or a division by zero."""
    parser = _Parser(text)
    result = parser.binary(0)
    if parser.token is not None:
        raise ValueError(f"{parser.token!r} is not expected in the expression {text!r}")
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.token: str | None = None
        self._advance()

    def _advance(self) -> None:
        if not self._text[self._at :].strip():
            self.token = None
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise ValueError(f"{self._text[self._at :].strip()[0]!r} is not expected in the expression {self._text!r}")
        self._at = match.end()
        self.token = match[match.lastindex or 0]

    def binary(self, level: int) -> Expression:
        """An expression of operators that bind at least as tightly as those of a level."""
        if level == len(_BINARY):
            return self._unary()
        left = self.binary(level + 1)
        while self.token in _BINARY[level]:
            left = self._combined(self.token or "", _BINARY[level][self.token or ""], left, level)
        return left

    def _combined(self, name: str, operator: Callable[[int, int], int], left: Expression, level: int) -> Expression:
        self._advance()
        right = self.binary(level + 1)
        text = self._text

        def apply(variables: Mapping[str, int]) -> int:
            a, b = left(variables), right(variables)
            if name in "/%" and b == 0:
                raise ValueError(f"division by zero in the expression {text!r}")
            return operator(a, b)

        return apply

    def _unary(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"the expression {self._text[:40]!r}... is nested too deeply")
        try:
            return self._operand()
        finally:
            self._depth -= 1

    def _operand(self) -> Expression:
        token = self.token
        if token is None:
            raise ValueError(f"the expression {self._text!r} is not complete")
        self._advance()
        if token == "-":
            operand = self._unary()
            return lambda variables: -operand(variables)
        if token == "!":
            operand = self._unary()
            return lambda variables: int(not operand(variables))
        if token == "(":
            inside = self.binary(0)
            if self.token != ")":
                raise ValueError(f"a parenthesis is not closed in the expression {self._text!r}")
            self._advance()
            return inside
        if token.isdigit():
            value = int(token)
            return lambda variables: value
        if token.isidentifier():
            return self._variable(token)
        raise ValueError(f"{token!r} is not expected in the expression {self._text!r}")

    def _variable(self, name: str) -> Expression:
        text = self._text

        def look_up(variables: Mapping[str, int]) -> int:
            if name not in variables:
                raise ValueError(f"no variable {name!r} in the expression {text!r}")
            return variables[name]

        return look_up
