"""Default values as MySQL writes them, and what follows from one for the rows of two servers."""

from __future__ import annotations

from pidts.schema.literals import Bytes, Expression, Now, Number, Text, parse_default

__all__ = ["Bytes", "Expression", "Now", "Number", "Text", "fills_alike", "parse_default"]


def fills_alike(default: str | None, *, executed_at: int) -> bool:
    """Whether a default gives the existing rows of two servers the same value when its column is added."""
    parsed = parse_default(default)
    if isinstance(parsed, Now):
        return parsed.fsp == 0 and executed_at > 0
    return not isinstance(parsed, Expression)
