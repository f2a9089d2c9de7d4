"""`pidts run --resync [TABLE,...]`: an option whose value may be left out, and what its values mean."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import ConfigError

RESYNC = "--resync"
_ALL = "*"


def with_tables(arguments: Sequence[str]) -> list[str]:
    """The command line with the value that was left out: no word follows, or one that names no table."""
    words: list[str] = []
    for at, word in enumerate(arguments):
        words.append(word)
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        if word == RESYNC and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            words.append(_ALL)
    return words


def resynced(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """The patterns of tables; empty: all of them; None: the option was not given."""
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise ConfigError("usage", f"{RESYNC}: a table's name is empty", todo="See: pidts run --help")
    return () if _ALL in names else tuple(names)
