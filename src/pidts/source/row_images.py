"""Whether the images of rows in a source's log tell enough.

An image that leaves out columns is completed from the target, unless nobody can tell which it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pidts.model import Table, TableName
from pidts.source.connection import ServerInfo
from pidts.source.finding import Finding

_LEAVES_OUT_GENERATED = (11, 0, 0)
"""10.11 has them in its images, 11.8 has not."""


def row_images(server: ServerInfo, settings: Mapping[str, str], tables: Mapping[TableName, Table]) -> Iterator[Finding]:
    """`settings` has `binlog_row_image` and `binlog_row_value_options` where the server knows them."""
    value = settings.get("binlog_row_image", "FULL")
    fix = "SET GLOBAL binlog_row_image = 'FULL';   -- and [mysqld] binlog_row_image = FULL; open sessions keep theirs"
    if value == "FULL":
        yield Finding("binlog_row_image", ok=True, message=f"binlog_row_image = {value}")
    elif hidden := _left_out(server, tables):
        what = f"binlog_row_image = {value}: this server then never tells the generated columns of {', '.join(hidden)}"
        yield Finding("binlog_row_image", ok=False, message=what, fix=fix)
    else:
        what = f"binlog_row_image = {value}: what updates leave out is read from the target, which costs speed"
        if server.is_mariadb and value == "MINIMAL":
            what += "; MariaDB does not tell which columns a REPLACE sets to their defaults"
        yield Finding("binlog_row_image", ok=True, message=what)
    if options := settings.get("binlog_row_value_options"):
        fix = "SET GLOBAL binlog_row_value_options = '';   -- and the same under [mysqld]"
        yield Finding("binlog_row_image", ok=False, message=f"binlog_row_value_options = {options}", fix=fix)


def _left_out(server: ServerInfo, tables: Mapping[TableName, Table]) -> list[str]:
    """Tables whose generated columns MariaDB leaves out of images, so that nobody can tell changed from unchanged."""
    if not server.is_mariadb or server.number < _LEAVES_OUT_GENERATED:
        return []
    return sorted(str(name) for name, table in tables.items() if any(column.generated for column in table.columns))
