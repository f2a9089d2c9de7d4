"""The schema of the product's own tables, where a task wants another one than `pidts_meta`.

All statements are written for that name; here it is replaced, in statements of our own only. A name in quotes is
somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

USUAL = "pidts_meta"

_NAMED = re.compile(r"(?<![\w`\"$])(?:'pidts_meta'|pidts_meta)(?![\w`\"$])")


def in_schema(schema: str, quote: str) -> Callable[[str], str]:
    """What makes statements speak of this schema; `quote` is the server's for names."""
    if schema == USUAL:
        return _same

    @lru_cache(maxsize=512)
    def renamed(sql: str) -> str:
        return _NAMED.sub(lambda found: f"'{schema}'" if found[0].startswith("'") else f"{quote}{schema}{quote}", sql)

    return renamed


def _same(sql: str) -> str:
    return sql
