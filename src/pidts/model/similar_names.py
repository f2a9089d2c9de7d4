"""Finds the known names that a misspelt name may mean."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def similar(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Returns the known names that are similar to this one, the most similar first.

    The case of letters does not matter, nor whether a name is written with `_` or `-`.
    """
    like: dict[str, list[str]] = {}
    for one in known:
        like.setdefault(_folded(one), []).append(one)
    alike = get_close_matches(_folded(name), like, n=most)
    return [one for folded in alike for one in sorted(like[folded], key=name.__ne__)][:most]


def suggestion(word: str, known: Iterable[str]) -> str:
    """Returns a question that names the most similar known word; empty if no known word is similar."""
    close = similar(word, known, most=1)
    return f"Did you mean {close[0]!r}?" if close else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
