"""Lists, numbers, sizes and times as sentences and messages have them."""

from __future__ import annotations

from collections.abc import Sequence


def listed(values: Sequence[object], most: int | None = None) -> str:
    """Values as a sentence lists them: a, b and c; `none` for none, and only the first `most` where there are more."""
    words = [str(value) for value in values[:most]]
    if len(words) < len(values):
        return f"{', '.join(words)}, …"
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]]) or "none"


def columns(rows: Sequence[Sequence[str]], *, left: bool = False) -> list[str]:
    """Lines of cells in columns, flush right or left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    side = "<" if left else ">"
    lines = (zip(row, widths, strict=True) for row in rows)
    return ["  ".join(f"{cell:{side}{width}}" for cell, width in line).rstrip() for line in lines]


def number(value: float, digits: int = 1) -> str:
    """A number with that many decimals, a true minus, and no minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def p_words(p: float) -> str:
    """A probability as papers write it."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def size_words(size: float) -> str:
    """A number of bytes in kB, MB or GB, which are powers of 1,000."""
    unit, scale = next(((u, s) for u, s in (("GB", 1e9), ("MB", 1e6)) if size >= s), ("kB", 1e3))
    return f"{size / scale:,.1f} {unit}"


def time_words(seconds: float | None) -> str:
    """A time in seconds, minutes or hours; `unknown` for None."""
    if seconds is None:
        return "unknown"
    units = (("hours", 3600), ("minutes", 60))
    unit, scale = next(((u, s) for u, s in units if seconds >= s), ("seconds", 1))
    return f"{seconds / scale:,.2f} {unit}"
