"""`pidts run --resync [TABLE,...]`: parses an option whose value may be left out."""

from __future__ import annotations

from collections.abc import Sequence

from pidts.model import ConfigError

RESYNC = "--resync"
_ALL = "*"


def with_tables(arguments: Sequence[str]) -> list[str]:
    """Returns the command line with `*` inserted where the value of `--resync` is missing.

    The value is missing if no word follows, or the next word is an option or a task file.
    """
    words: list[str] = []
    for at, word in enumerate(arguments):
        words.append(word)
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        if word == RESYNC and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            words.append(_ALL)
    return words


def resynced(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns the patterns of tables; empty for all tables, None if the option is not given."""
    if not values:
        return None
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise ConfigError("usage", f"{RESYNC}: a table's name is empty", todo="See: pidts run --help")
    return () if _ALL in names else tuple(names)
