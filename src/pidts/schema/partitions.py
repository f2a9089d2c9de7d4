"""Reads the partitioning clause in a table's definition."""

from __future__ import annotations

import re

_BEHIND_COLUMNS = re.compile(r"\n\) .*?\n(?: |/\*!\d+ )(PARTITION BY .*)\Z", re.DOTALL)
_QUOTED = re.compile(r"('(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`)", re.DOTALL)
_COMMENT_SIGN = re.compile(r" ?\*/|/\*!\d+ ")
_PLACE = re.compile(r"\b(?:DATA|INDEX) DIRECTORY\b|\bTABLESPACE\b", re.IGNORECASE)


def partition_clause(shown: str) -> str:
    """Returns `PARTITION BY …` from a CREATE TABLE statement, without version comments; empty if there is none."""
    found = _BEHIND_COLUMNS.search(shown)
    if found is None:
        return ""
    parts = _QUOTED.split(found[1])
    return "".join(part if at % 2 else _COMMENT_SIGN.sub("", part) for at, part in enumerate(parts)).strip()


def is_same(one: str, other: str) -> bool:
    """Whether two clauses are equal, apart from spaces, quotes around names, and the case of letters."""
    return _compared(one) == _compared(other)


def names_place(clause: str) -> bool:
    """Whether the clause names a directory or tablespace of the source's server."""
    return any(_PLACE.search(part) for part in _QUOTED.split(clause)[::2])


def _compared(clause: str) -> str:
    return "".join(
        part if part.startswith("'") else re.sub(r"[\s`]+", "", part).lower() for part in _QUOTED.split(clause)
    )
