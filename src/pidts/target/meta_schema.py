"""The schema of the product's own tables, where a task wants another one than `pidts_meta`.

All statements are written for that name; here it is replaced, in statements of our own only. A name in quotes is
somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

Run = Callable[[str, Sequence[Any]], tuple[list[tuple[Any, ...]], int]]
"""Executes a statement with `%s` places; gives the rows and the number of rows matched."""

USUAL = "pidts_meta"

META_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'checkpoint'"

_NAMED = re.compile(r"(?<![\w`\"$])(?:'pidts_meta'|pidts_meta)(?![\w`\"$])")


def in_schema(schema: str, quote: str) -> Callable[[str], str]:
    """Returns a function that makes statements name this schema; `quote` is the server's quote for names."""
    if schema == USUAL:
        return _same

    @lru_cache(maxsize=512)
    def renamed(sql: str) -> str:
        return _NAMED.sub(lambda found: f"'{schema}'" if found[0].startswith("'") else f"{quote}{schema}{quote}", sql)

    return renamed


def seconds(moment: datetime) -> float:
    """A session's clock is UTC, whether its driver says so or not."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _same(sql: str) -> str:
    return sql
