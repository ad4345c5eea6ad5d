"""Durations as people write them: 90s, 10m, 1h, 1h30m."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """Seconds. ValueError for what is none, or not more than 0."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration, such as 90s, 10m, 1h or 1h30m")
    seconds = sum(float(number or 0) * unit for number, unit in zip(match.groups(), (3600, 60, 1), strict=True))
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time at all")
    return seconds


def duration_text(seconds: float) -> str:
    """ "12 s", "3 min 20 s", "2 h 5 min": two units at most."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
