"""Writes the text of a first task file, with the findings about the servers as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pidts.login import Tls
from pidts.model.errors import plural
from pidts.source import Finding
from pidts.task.draft.inspect import FirstLook, SeenTable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_SHOWN = 40
"""The most tables of a schema that are named. The others are only counted."""
_TOLD = ("version", "binlog_format", "binlog_row_image", "binlog_expiry", "gtid")
_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Login:
    """The login of a server in the file."""

    host: str
    port: int
    user: str
    variable: str
    """The environment variable of the password; empty if there is no password."""
    tls: tuple[tuple[str, str], ...] = ()
    """The keys of DM's block `security`."""
    type: str = "mysql"
    database: str = ""

    def lines(self) -> list[str]:
        """Returns the lines of a block."""
        found = [f"host: {_scalar(self.host)}", f"port: {self.port}", f"user: {_scalar(self.user)}"]
        given = f'password: "${{{self.variable}}}"'
        found += [given] if self.variable else ['# password: "${PASSWORD}"   # none was needed']
        found += [f"database: {_scalar(self.database)}"] if self.database else []
        found += ["security:", *(f"  {key}: {_scalar(value)}" for key, value in self.tls)] if self.tls else []
        return found


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of the file."""

    name: str
    source_id: str
    source: Login
    target: Login
    look: FirstLook
    only: tuple[tuple[str, str], ...] = ()
    """The patterns of `--tables`, as schema and table; empty for all tables."""

    def text(self, quoted: str) -> str:
        """Returns the text of the file. `quoted` is the file's name in the commands in the text."""
        return "\n".join([*self._head(quoted), "", *self._servers(), "", *self._choice(), "", *self._settings(), ""])

    @property
    def may_lack_schemas(self) -> bool:
        """Whether the source may have schemas that the file lacks only because the account does not see them."""
        is_open = not self.only or any(pattern(schema) != schema for schema, _ in self.only)
        return is_open and not self.look.sees_all_schemas

    @property
    def about_unseen(self) -> str:
        """The comment about schemas that the account may not see, and how the task can take them."""
        return (
            f"{self.source.user} sees only schemas on which it has a privilege. If the task has to take others: GRANT "
            "SELECT on them, and run `pidts init` again"
        )

    def _head(self, quoted: str) -> Iterator[str]:
        yield f"# {self.look.server} -> {self.target.type}. Read it through, then run: pidts check {quoted}"
        yield f"# To see the SQL that grants its accounts what they need: pidts grants {quoted}"
        names = list(dict.fromkeys(filter(None, (self.source.variable, self.target.variable))))
        if names:
            yield f"# It contains no passwords. Before each command: export {' '.join(f'{name}=...' for name in names)}"
        if failed := [finding for finding in self.look.findings if not finding.ok]:
            yield "#"
            yield "# The source is not ready yet:"
            yield from _wrapped(line for finding in failed for line in _finding_lines(finding))
        yield ""
        yield f"name: {_scalar(self.name)}"
        yield "task-mode: all          # copy the existing rows, then follow the changes; or: full, incremental"
        if self.look.case_matters:
            yield "case-sensitive: true    # names of tables on this source differ only in upper and lower case"

    def _servers(self) -> Iterator[str]:
        yield "target-database:"
        yield f"  type: {self.target.type}"
        yield from (f"  {line}" for line in self.target.lines())
        yield ""
        yield from _wrapped(
            f"{finding.item}: {finding.message}"
            for finding in self.look.findings
            if finding.item in _TOLD and finding.ok
        )
        yield "mysql-instances:"
        yield f"  - source-id: {_scalar(self.source_id)}   # the source's name in commands, messages and records"
        yield "    from:"
        yield from (f"      {line}" for line in self.source.lines())
        if self.look.has_gtids:
            yield "    enable-gtid: true   # find the place in the log by GTID, even after a failover of the source"
        yield "    block-allow-list: chosen"

    def _choice(self) -> Iterator[str]:
        yield from self._seen()
        if self.may_lack_schemas:
            yield from _wrapped((self.about_unseen,))
        yield "block-allow-list:"
        yield "  chosen:"
        yield "    do-dbs:"
        left = [table for table in self.look.tables if table.left_out]
        whole = all(table == "*" for _, table in self.only)
        if whole:
            schemas = [schema for schema, _ in self.only] or list(map(pattern, _schemas(self.look.taken)))
            yield from (f"      - {_scalar(schema)}" for schema in dict.fromkeys(schemas))
            yield from ["    ignore-tables:"] if left else []
        else:
            yield from (f"      - {_scalar(schema)}" for schema in dict.fromkeys(schema for schema, _ in self.only))
            yield "    do-tables:"
            # `ignore-tables` has no effect on tables that `do-tables` names.
            names = [(pattern(table.name.schema), pattern(table.name.name)) for table in self.look.taken]
            yield from (f"      - {_pair(*pair)}" for pair in (names if left else self.only))
            yield from ["    # Left out:"] if left else []
        for table in left:
            yield from _wrapped((f"{table.name}: {table.left_out}",), "      # ")
            if whole:
                yield f"      - {_pair(pattern(table.name.schema), pattern(table.name.name))}"

    def _settings(self) -> Iterator[str]:
        if self.target.type == "postgresql" and self.look.refuses_unreal:
            yield "pidts:"
            yield "  zero-dates: error     # sql_mode refuses them and no row has one, so NOT NULL dates stay NOT NULL"
            yield ""
        yield from _SETTINGS

    def _seen(self) -> Iterator[str]:
        for schema in _schemas(self.look.taken):
            tables = [table for table in self.look.taken if table.name.schema == schema]
            count = plural("table", len(tables))
            yield from _wrapped((f"{schema}: {count}, {_counted(tables)}",))
            largest = sorted(tables, key=lambda table: (-(table.size.bytes if table.size else 0), table.name))
            lines = [f"  {table.name.name}: {_counted([table])}{_remarks(table)}" for table in largest[:_SHOWN]]
            lines += [f"  and {len(tables) - _SHOWN} more"] if len(tables) > _SHOWN else []
            yield from _wrapped(lines)
        if unfit := [table for table in self.look.taken if table.problem]:
            yield "# The target's tables of these names cannot be used as they are; drop, empty or exclude them:"
            yield from _wrapped(f"  {table.name}: {table.problem}" for table in unfit)
        if noted := [table for table in self.look.taken if table.notes]:
            yield f"# On {self.target.type} these will differ from the source:"
            lines = [f"  {table.name}: {note}" for table in noted for note in table.notes]
            yield from _wrapped(lines[:_SHOWN])
            if len(lines) > _SHOWN:
                yield f"#   and {len(lines) - _SHOWN} more, which `pidts plan` shows"


_SETTINGS = (
    "# Other settings, with their defaults.",
    "# syncers:",
    "#   global: {worker-count: 1}     # parallel connections to the target; use it by: syncer-config-name: global",
    "# pidts:",
    "#   relay: relay/NAME             # a folder for the log that is received and not on the target yet",
    "#   version-column: update_time   # default: none. A column that shows which version of a row is newer",
    "#   copy-rate: 0                  # the most rows that the copy reads in a second; 0: no limit",
)


def source_id_of(host: str, port: int) -> str:
    """Returns a source id, which can also be the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{host}-{port}").strip("-.")[-32:].lstrip("-.")


def task_name_of(tables: Sequence[SeenTable]) -> str:
    """Returns the task's name: the name of the schema if there is only one schema, otherwise `sync`."""
    schemas = _schemas(tables)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", schemas[0]).strip("-") if len(schemas) == 1 else ""
    return name or "sync"


def security_of(tls: Tls) -> tuple[tuple[str, str], ...]:
    """Returns the keys of DM's `security` block. Paths are absolute: the task file may be written to another folder."""
    plain = Tls()
    if tls == plain:
        return ()
    files = (("ssl-ca", tls.ca), ("ssl-cert", tls.cert), ("ssl-key", tls.key))
    paths = [(key, str(Path(file).expanduser().absolute())) for key, file in files if file]
    return (("ssl-mode", tls.mode.value), *paths)


def pattern(name: str) -> str:
    """Returns a pattern for a block-allow-list that fits only this name, even if it has special characters."""
    return f"~^{re.escape(name)}$" if name.startswith("~") or set("*?[") & set(name) else name


def _schemas(tables: Iterable[SeenTable]) -> list[str]:
    return sorted({table.name.schema for table in tables})


def _counted(tables: Sequence[SeenTable]) -> str:
    sizes = [table.size for table in tables if table.size]
    if not sizes:
        return "size unknown"
    return f"about {sum(size.rows for size in sizes):,} rows, {sum(size.bytes for size in sizes) / 1e6:,.1f} MB"


def _remarks(table: SeenTable) -> str:
    if table.has_key:
        return ""
    return "; no key: the table is copied in one piece, and its rows are found by comparing all columns"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"  {finding.item}: {finding.message}"
    if finding.fix:
        yield f"    fix: {finding.fix}"


def _pair(schema: str, table: str) -> str:
    return f"{{db-name: {_scalar(schema)}, tbl-name: {_scalar(table)}}}"


def _scalar(text: str) -> str:
    """Returns a text as YAML: as a JSON string, unless it is a plain word."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)


def _wrapped(lines: Iterable[str], sign: str = "# ") -> Iterator[str]:
    """Yields the lines as comments of limited width. A name may contain any character, even a line break."""
    for line in lines:
        said = " ".join(line.split())
        indent = line[: len(line) - len(line.lstrip(" "))]
        words, row = said.split(" "), indent
        first = True
        for word in words:
            if not first and len(sign) + len(row) + len(word) > _WIDTH:
                yield f"{sign}{row}".rstrip()
                row = indent + "  "
            row += word + " "
            first = False
        yield f"{sign}{row}".rstrip()
