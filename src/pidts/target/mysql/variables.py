"""Global variables of a MySQL, MariaDB or TiDB target."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.target.mysql.session import MySqlSession


def global_variables(session: MySqlSession, names: Iterable[str]) -> dict[str, str]:
    """Returns those of these variables that the server knows."""
    wanted = ", ".join(f"'{name}'" for name in names)
    sql = f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})"
    return {str(name).lower(): str(value) for name, value in session.exchange.now(sql.encode()).rows}
