"""`session` of a target: the variables that DM sets in each of its connections.

They are set after the product's own, on MySQL, MariaDB and TiDB. Some are the product's business, and are noted where
they ask for something else: values arrive as the source has them because of these. Others would make the target answer
less than the truth; they are refused.
"""

from __future__ import annotations

import re

from pidts.task.config.section import Section

_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_EXACT = "no effect: the product sets it itself, so that values arrive as the source has them"
_CHECKED = "no effect: rows arrive table by table, parents and children in any order, and the source has checked them"
_ONE_TRANSACTION = "no effect: rows and their checkpoint commit in one transaction, whose kind the product chooses"
_OFF, _ON = ("0", "off", "false"), ("1", "on", "true")

_OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "sql_mode": (_EXACT, ()),
    "time_zone": (_EXACT, ("+00:00", "utc")),
    "names": (_EXACT, ("utf8mb4",)),
    "character_set_client": (_EXACT, ("utf8mb4",)),
    "character_set_connection": (_EXACT, ("utf8mb4",)),
    "character_set_results": (_EXACT, ("utf8mb4",)),
    "collation_connection": (_EXACT, ()),
    "foreign_key_checks": (_CHECKED, _OFF),
    "unique_checks": ("no effect: unique keys are always checked", _ON),
    "autocommit": (_ONE_TRANSACTION, _ON),
    "transaction_isolation": (_ONE_TRANSACTION, ("read-committed",)),
    "tx_isolation": (_ONE_TRANSACTION, ("read-committed",)),
    "tidb_txn_mode": (_ONE_TRANSACTION, ("pessimistic",)),
}
"""Variables that the product sets: what is said of another value than these."""

_CUT = "rows and warnings that the product reads back would be cut off"
_FALSE = "statements of the product would mean something else"
_REFUSED = {
    "sql_select_limit": _CUT,
    "max_error_count": _CUT,
    "sql_safe_updates": _FALSE,
    "sql_auto_is_null": _FALSE,
    "sql_quote_show_create": _FALSE,
    "timestamp": _FALSE,
    "insert_id": _FALSE,
    "last_insert_id": _FALSE,
    "gtid_next": _FALSE,
    "transaction_read_only": "nothing could be written",
    "tx_read_only": "nothing could be written",
}


def read_variables(server: Section, *, mysql: bool) -> tuple[tuple[str, str], ...]:
    """The variables to set."""
    session = server.section("session")
    if session.names and not mysql:
        server.note("session", "no effect: these are variables of MySQL's sessions")
        return ()
    taken = []
    for key in session.names:
        name, value = key.lower(), session.text(key, "")
        bare = value.strip("'\" ")
        if not _NAME.fullmatch(name):
            raise session.error(key, "bad-value", f"{key!r} is no name of a variable")
        if name in _REFUSED:
            raise session.error(key, "not-supported", _REFUSED[name], "Remove it.")
        if name in _OWN:
            note, usual = _OWN[name]
            if bare.lower() not in usual:
                session.note(key, note)
            continue
        if name.startswith("tidb_"):
            session.note(key, "set only where the target is TiDB")
        taken.append((name, bare))
    return tuple(taken)
