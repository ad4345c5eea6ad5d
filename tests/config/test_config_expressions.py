"""Index and condition expressions, against Python's own arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rjemu.config.expressions import parse

VALUES = {"i": 7, "j": 2, "k_1": 0}


def trees(depth: int) -> st.SearchStrategy[tuple[str, str]]:
    """(text in C's syntax, text in Python's syntax) of random expressions."""
    leaf = st.one_of(
        st.integers(0, 1000).map(lambda n: (str(n), str(n))),
        st.sampled_from(sorted(VALUES)).map(lambda name: (name, name)),
    )
    if depth == 0:
        return leaf
    below = trees(depth - 1)
    arithmetic = st.tuples(below, st.sampled_from("+-*"), below).map(
        lambda t: (f"{t[0][0]} {t[1]} ({t[2][0]})", f"({t[0][1]} {t[1]} ({t[2][1]}))")
    )
    grouped = below.map(lambda t: (f"({t[0]})", f"({t[1]})"))
    negated = below.map(lambda t: (f"-({t[0]})", f"(-({t[1]}))"))
    return st.one_of(leaf, grouped, negated, arithmetic.map(lambda t: (f"({t[0]})", t[1])))


@given(trees(4))
def test_arithmetic(pair: tuple[str, str]) -> None:
    text, python = pair
    assert parse(text)(VALUES) == eval(python, {}, VALUES)


@given(
    st.lists(st.sampled_from(["3", "i", "j", "(i-9)", "0"]), min_size=2, max_size=12),
    st.lists(st.sampled_from([" + ", "-", "*"]), min_size=11, max_size=11),
)
def test_precedence(operands: list[str], operators: list[str]) -> None:
    text = operands[0] + "".join(operator + operand for operator, operand in zip(operators, operands[1:], strict=False))
    assert parse(text)(VALUES) == eval(text, {}, VALUES)


PYTHONS = {"&&": "and", "||": "or"}


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), st.integers(0, 3)), min_size=1
    ),
    st.lists(st.sampled_from(sorted(PYTHONS)), min_size=20, max_size=20),
)
def test_conditions(comparisons: list[tuple[int, str, int]], joints: list[str]) -> None:
    comparisons = comparisons[:20]
    parts = [f"{a} {operator} {b}" for a, operator, b in comparisons]
    text = python = parts[0]
    for joint, part in zip(joints, parts[1:], strict=False):
        text, python = f"{text} {joint} {part}", f"{python} {PYTHONS[joint]} {part}"
    assert bool(parse(text)({})) == eval(python)


@given(st.integers(-50, 50), st.integers(-9, 9).filter(bool))
def test_division_rounds_towards_zero(a: int, b: int) -> None:
    values = {"a": a, "b": b}
    assert parse("a / b")(values) == math.trunc(a / b)
    assert parse("a % b")(values) == a - b * math.trunc(a / b)
    assert parse("a/b*b + a%b")(values) == a


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i", 7),
        ("j*9+k_1", 18),
        ("1+2*3-4", 3),
        ("20-5-5", 10),
        ("100/10/2", 5),
        ("i%4", 3),
        ("i != j", 1),
        ("i == 7 && j == 3", 0),
        ("i == 0 || j == 2", 1),
        ("!k_1", 1),
        ("!(i < j)", 1),
        ("i >= 7", 1),
        ("2 + 3 > 4", 1),
        ("- -3", 3),
        ("1 || 1 && 0", 1),
        ("0 && 1/0", 0),
        ("3 || 1/0", 1),
        ("k_1 != 0 && 8/k_1 > 1", 0),
        ("0 && 1/0 || 1", 1),
    ],
)
def test_values(text: str, value: int) -> None:
    assert parse(text)(VALUES) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 +",
        "(1",
        "1)",
        "i j",
        "i = j",
        "a.b",
        "f(1)",
        "'x'",
        "1 << 2",
        "__import__('os')",
        "(" * 100 + "1",
        "1" * 11,
        "²",
    ],
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ValueError, match="expression"):
        parse(text)


@pytest.mark.parametrize("text", ["+".join("i" * 65), "(" * 64 + "i" + ")" * 64, "-" * 128 + "i"])
def test_long_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 128 parts"):
        parse(text)


def test_the_longest_expressions() -> None:
    assert parse("+".join("i" * 64))(VALUES) == 7 * 64
    assert parse("(" * 63 + "i" + ")" * 63)(VALUES) == 7
    assert parse("-" * 127 + "i")(VALUES) == -7


@pytest.mark.parametrize(
    ("text", "message"), [("x + 1", "no variable 'x'"), ("1/k_1", "division by zero"), ("i%0", "by zero")]
)
def test_what_has_no_value(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)(VALUES)
