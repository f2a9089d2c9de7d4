"""The tables that a reader of a log names."""

from __future__ import annotations

from pidts.model import ConfigError
from pidts.rules import SYSTEM_SCHEMAS, AllowList


def asked_tables(text: str, option: str) -> AllowList:
    """Reads `shop.orders,crm.*`; refuses a schema that is never shown, which nothing in the log would answer for."""
    found = AllowList.parse(text)
    for schema, _ in found.do_tables:
        if schema.lower() in SYSTEM_SCHEMAS:
            todo = f"Name other tables; never shown are those of {', '.join(sorted(SYSTEM_SCHEMAS))}"
            raise ConfigError("bad-value", f"{option}: the tables of {schema} are never shown", todo=todo)
    return found
