"""Durations as people write them."""

from __future__ import annotations

import pytest

from rjemu.jobs.duration import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("0.5s", 0.5), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("1.5h", 5400), (" 2m5s ", 125)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10 m", "-5s", "0", "1d", "5m1h", "ten", "1e3", "nan", "inf"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (61, "1 min 1 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")]
)
def test_texts(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
