"""The structures of all tables at one place in a log, updated with each statement.

Structures are never guessed: a table's structure may be unknown. If a statement cannot be parsed or applied, the
structures of its tables are unknown after this statement.

A server's catalog shows the *current* structures. The catalog may have been read after the place in the log at which
reading starts. If a table was altered in between, its structure is unknown up to its last alteration. An example shows
why: `a` is renamed to `b`, and a new `a` is created. With the later catalog, older rows could have the right number of
columns and wrong names.

The log itself may show more: with `binlog_row_metadata=FULL`, it contains a table's columns before the table's rows
(`refined`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pidts.schema.statements as ddl
from pidts.model.errors import Halted, Where
from pidts.model.lsn import Lsn
from pidts.model.table import Column, Table, TableName, names_from_json, names_to_json
from pidts.model.transaction import Transaction
from pidts.model.types import IDENTIFIERS, Kind
from pidts.schema.affected_tables import concerned, databases, mentions, understood
from pidts.schema.charset_rules import Charset
from pidts.schema.dialect import Dialect
from pidts.schema.evolve.apply_statement import apply, apply_charset
from pidts.schema.evolve.sequences import sequences_after, sequences_before
from pidts.schema.evolve.unknown_charset import CANDIDATES, common, with_charset

_Name = TypeVar("_Name")
_Value = TypeVar("_Value")

Known = Table | str | None
"""A table's structure, the statement that made the structure unknown, or None if there is no such table."""


@dataclass(frozen=True, slots=True)
class RelearnedStructures:
    """The tables, charsets and sequences that become known again after one transaction."""

    lsn: Lsn
    tables: Mapping[TableName, Known] = field(default_factory=dict)
    charsets: Mapping[str, Charset | None] = field(default_factory=dict)
    sequences: frozenset[TableName] | None = None
    """The names of all sequences, if they become known again after this transaction; None if they do not."""


@dataclass(frozen=True, slots=True)
class KnownStructures:
    """The structures of all tables, as far as they are known at one place of the log.

    An object of this class is called a *history*. The first history of a log is read from a server's catalog; `after`
    and `before` return the histories at other places.
    """

    tables: Mapping[TableName, Table] = field(default_factory=dict)
    charsets: Mapping[str, Charset] = field(default_factory=dict)
    """The default charset and collation of each database, which new tables inherit."""
    unknown: Mapping[TableName, str] = field(default_factory=dict)
    """The tables whose structure is unknown, each with the statement that made it unknown."""
    unclear: tuple[str, ...] = ()
    """Statements that could not be parsed: they may have changed tables that this history lacks."""
    complete: bool = True
    """Whether it is certain that this history has all tables; False if no complete catalog was read."""
    turns: tuple[RelearnedStructures, ...] = ()
    sequences: frozenset[TableName] = frozenset()
    """MariaDB's SEQUENCE objects, as far as a catalog or a statement has shown them."""

    def table(self, name: TableName) -> Table | None:
        """Returns the table's structure; None if this history lacks the table. Raises `Halted` if it is unknown."""
        if (table := self.tables.get(name)) is not None:
            return table
        if name in self.sequences:
            return None
        if statement := self.unknown.get(name) or next((text for text in self.unclear if mentions(text, name)), ""):
            raise structure_unknown(name, statement)
        return None

    def has_no(self, name: TableName) -> bool:
        """Whether it is certain that the source had no table of this name at this place."""
        if name in self.sequences:
            return True
        return (
            self.complete
            and name not in self.tables
            and name not in self.unknown
            and not any(mentions(text, name) for text in self.unclear)
        )

    def is_sequence(self, name: TableName, *, looks_like_one: bool = False) -> bool:
        """Whether rows that the log has under this name are the state of one of MariaDB's SEQUENCE objects.

        Such rows are left out. If neither a statement nor a catalog has shown the sequence, two conditions decide: the
        rows look like a sequence's rows, and there is no table of this name. The second condition is needed because a
        copy of a sequence is a table with the same columns.
        """
        if name in self.tables:
            return False
        return name in self.sequences or (looks_like_one and self.has_no(name))

    def after(self, transaction: Transaction, dialect: Dialect) -> KnownStructures:
        """Returns the history after the next transaction in the log; the same object if no structure has changed.

        `dialect` is the server's dialect. If `sql_mode` and time zone of the statement's session are known, pass
        `dialect.under(sql_mode, time_zone)`.
        """
        if transaction.ddl is None:
            return self
        history = self
        for statement in understood(transaction.ddl, transaction.ddl_schema, dialect):
            before, history = history.sequences, history._follow(statement, transaction.ddl, dialect)
            sequences = sequences_after(before, statement, transaction.ddl) | (history.sequences - before)
            if sequences != history.sequences:
                history = replace(history, sequences=sequences)
        due = tuple(turn for turn in history.turns if turn.lsn <= transaction.lsn)
        return history._with(due) if due else history  # noqa: SLF001 - of this class

    def before(self, changes: Iterable[Transaction], dialect: Dialect) -> KnownStructures:
        """Returns the structures as they were known before `changes`.

        `changes` are the log's last schema changes before this history, in the order of the log. If they are applied to
        the result one by one with `after`, the result becomes this history again.
        """
        first: dict[TableName, str] = {}
        last: dict[TableName, Lsn] = {}
        schemas: dict[str, Lsn] = {}
        final: set[Lsn] = set()
        statements: list[ddl.Statement] = []
        for transaction in changes:
            text = transaction.ddl or ""
            for statement in understood(text, transaction.ddl_schema, dialect) if text else ():
                statements.append(statement)
                there = {*self.tables, *self.unknown, *last}
                for name, is_new in concerned(statement, text, there):
                    first.setdefault(name, "" if is_new else text)
                    last[name] = transaction.lsn
                schemas |= dict.fromkeys(databases(statement, text, self.charsets), transaction.lsn)
            final = {transaction.lsn}
        lsns = sorted({*last.values(), *schemas.values(), *final})
        turns = tuple(
            RelearnedStructures(
                lsn,
                {name: self.tables.get(name) or self.unknown.get(name) for name, at in last.items() if at == lsn},
                {name: self.charsets.get(name) for name, at in schemas.items() if at == lsn},
            )
            for lsn in lsns
        )
        unknown = {name: text for name, text in self.unknown.items() if name not in first}
        sequences = self.sequences
        for statement in reversed(statements):
            sequences = sequences_before(sequences, statement)
        if turns and (self.sequences or sequences):
            turns = (*turns[:-1], replace(turns[-1], sequences=self.sequences))
        unknown |= {name: text for name, text in first.items() if text and name not in sequences}
        return replace(
            self,
            tables={name: table for name, table in self.tables.items() if name not in first},
            charsets={name: charset for name, charset in self.charsets.items() if name not in schemas},
            unknown=unknown,
            sequences=sequences,
            turns=(*turns, *self.turns),
        )

    def doubting(self, changes: Iterable[Transaction], dialect: Dialect) -> KnownStructures:
        """Returns the history in which the tables that were changed *while* the catalog was read are unknown.

        The catalog may show the structures before or after each of these `changes`.
        """
        changes = [*changes]
        doubtful = {
            name: text
            for text, schema in ((change.ddl or "", change.ddl_schema) for change in changes)
            for statement in (understood(text, schema, dialect) if text else ())
            for name, _ in concerned(statement, text, self.tables)
        }
        sequences = self.sequences
        for change in changes:  # a change that the catalog already shows has no effect
            for statement in understood(change.ddl or "", change.ddl_schema, dialect):
                sequences = sequences_after(sequences, statement, change.ddl or "")
        if not doubtful:
            return self if sequences == self.sequences else replace(self, sequences=sequences)
        tables = {name: table for name, table in self.tables.items() if name not in doubtful}
        return replace(self, tables=tables, unknown={**self.unknown, **doubtful}, sequences=sequences)

    def to_json(self) -> dict[str, Any]:
        """Returns the history as plain values for JSON."""
        return {
            "tables": [table.to_json() for table in self.tables.values()],
            "charsets": {name: list(charset) for name, charset in self.charsets.items()},
            "unknown": [[name.schema, name.name, text] for name, text in self.unknown.items()],
            "unclear": list(self.unclear),
            "complete": self.complete,
            "sequences": names_to_json(self.sequences),
            "turns": [
                {
                    "lsn": str(turn.lsn),
                    "tables": [
                        [name.schema, name.name, known.to_json() if isinstance(known, Table) else known]
                        for name, known in turn.tables.items()
                    ],
                    "charsets": {name: charset and list(charset) for name, charset in turn.charsets.items()},
                    "sequences": None if turn.sequences is None else names_to_json(turn.sequences),
                }
                for turn in self.turns
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KnownStructures:
        """Returns the history with the values that `to_json` has returned."""
        tables = [Table.from_json(item) for item in data["tables"]]
        return cls(
            tables={table.name: table for table in tables},
            charsets={name: (charset, collation) for name, (charset, collation) in data["charsets"].items()},
            unknown={TableName(schema, name): text for schema, name, text in data["unknown"]},
            unclear=tuple(data["unclear"]),
            complete=data["complete"],
            sequences=names_from_json(data.get("sequences", [])),
            turns=tuple(
                RelearnedStructures(
                    Lsn.parse(item["lsn"]),
                    {
                        TableName(schema, name): Table.from_json(known) if isinstance(known, dict) else known
                        for schema, name, known in item["tables"]
                    },
                    {name: charset and (charset[0], charset[1]) for name, charset in item["charsets"].items()},
                    None if item.get("sequences") is None else names_from_json(item["sequences"]),
                )
                for item in data["turns"]
            ),
        )

    def _follow(self, statement: ddl.Statement, text: str, dialect: Dialect) -> KnownStructures:
        match statement:
            case ddl.SequenceChange(made=made, there=there, unless_table=maybe):
                # The statement has run on the server, so there is no table of this name.
                new = self.sequences.union(filter(self.has_no, maybe))
                history = self._put(dict.fromkeys([*made, *there]))
                return history if new == self.sequences else replace(history, sequences=new)
            case ddl.IgnoredStatement() | ddl.StatementDml() | ddl.TruncateTable():
                return self
            case ddl.Unknown():
                names = [name for name, _ in concerned(statement, text, {*self.tables, *self.unknown})]
                gone = databases(statement, text, self.charsets)
                charsets = {name: charset for name, charset in self.charsets.items() if name not in gone}
                return replace(self._lost(text, names), charsets=charsets, unclear=(*self.unclear, text))
            case ddl.RenameTable():
                return self._renamed(statement, text)
            case ddl.CreateTable() | ddl.CreateTableLike():
                return self._created(statement, text, dialect)
            case ddl.AlterTable():
                return self._altered(statement, text, dialect)
            case ddl.DropTable(tables=names):
                return self._put(dict.fromkeys(names))
        return self._database(statement, dialect)

    def _created(
        self, statement: ddl.CreateTable | ddl.CreateTableLike, text: str, dialect: Dialect
    ) -> KnownStructures:
        name = statement.table
        if statement.if_not_exists and not statement.or_replace:
            if name in self.tables or name in self.unknown or name in self.sequences:
                return self
            if not self.complete:
                return self._lost(text, [name])
        if isinstance(statement, ddl.CreateTableLike) and statement.like in self.sequences:
            return self._put({name: None})  # the new object is a sequence with the same definition
        # The statement has run on the server, so there was no such table before, even if this history has one.
        statement = replace(statement, or_replace=True)
        like = self.tables.get(statement.like) if isinstance(statement, ddl.CreateTableLike) else None
        return self._applied(statement, text, dialect, inherits=like is None or like.charset is not None)

    def _altered(self, statement: ddl.AlterTable, text: str, dialect: Dialect) -> KnownStructures:
        names = statement.tables
        if names[0] in self.sequences and names[0] not in self.tables:
            return self
        if (table := self.tables.get(names[0])) is not None:
            return self._applied(statement, text, dialect, inherits=table.charset is not None)
        if names[0] in self.unknown:
            return self._put({names[0]: None, names[-1]: self.unknown[names[0]]})
        return self if statement.if_exists or not self.complete else self._lost(text, names)

    def _applied(
        self,
        statement: ddl.CreateTable | ddl.CreateTableLike | ddl.AlterTable,
        text: str,
        dialect: Dialect,
        *,
        inherits: bool,
    ) -> KnownStructures:
        """Returns the structures after a statement.

        If the charset that the table inherits is unknown, several charsets are tried. Most statements make the same
        structure with each of them.
        """
        schema = statement.table.schema
        default = self.charsets.get(schema) if inherits else None
        unread = [table for name in statement.tables if (table := self.tables.get(name)) and table.has_unknown_charset]
        ways = []
        try:
            for charset in CANDIDATES if default is None or unread else (default,):
                supposing = {table.name: with_charset(table, charset, dialect) for table in unread}
                tables = {**self.tables, **supposing} if unread else self.tables
                ways.append(apply(statement, tables, {schema: default or charset}, dialect=dialect))
        except Halted:
            return self._lost(text, statement.tables if isinstance(statement, ddl.AlterTable) else statement.tables[:1])
        changed: dict[TableName, Known] = {}
        for name in ways[0]:
            found = [table for way in ways if (table := way[name]) is not None]
            changed[name] = (common(found) or self.unknown.get(name, text)) if found else None
        return self._put(changed)

    def _renamed(self, statement: ddl.RenameTable, text: str) -> KnownStructures:
        """Returns the structures after the renames, pair by pair: two tables can swap names with a third name."""
        state: dict[TableName, Known] = {}
        sequences = self.sequences
        for old, new in statement.pairs:
            known = state[old] if old in state else self.tables.get(old) or self.unknown.get(old)
            if known is None and (statement.if_exists or old in sequences):
                if old in sequences:
                    sequences = sequences_after(sequences, ddl.RenameTable(((old, new),)), text)
                    state[old] = state[new] = None
                continue
            state[old] = None
            # The history may lack the renamed table. In a complete history, the structure of the table `new` is then
            # unknown; an incomplete history also lacks the table `new`.
            state[new] = known.renamed(new) if isinstance(known, Table) else known or (text if self.complete else None)
        return self._put(state)

    def _database(self, statement: ddl.Statement, dialect: Dialect) -> KnownStructures:
        history = self
        if isinstance(statement, ddl.DropDatabase) or (
            isinstance(statement, ddl.CreateDatabase) and statement.or_replace
        ):
            gone = [name for name in (*self.tables, *self.unknown) if name.schema == statement.name]
            history = history._put(dict.fromkeys(gone))
        if isinstance(statement, ddl.CreateDatabase) and statement.if_not_exists and not self.complete:
            return history
        changed = apply_charset(statement, history.charsets, dialect=dialect)
        return replace(history, charsets=_merged(history.charsets, changed)) if changed else history

    def _lost(self, text: str, names: Iterable[TableName]) -> KnownStructures:
        return self._put({name: self.unknown.get(name, text) for name in names})

    def _put(self, changed: Mapping[TableName, Known] | Mapping[TableName, Table | None]) -> KnownStructures:
        if not changed:
            return self
        tables = {name: known if isinstance(known, Table) else None for name, known in changed.items()}
        unknown = {name: known if isinstance(known, str) else None for name, known in changed.items()}
        return replace(self, tables=_merged(self.tables, tables), unknown=_merged(self.unknown, unknown))

    def _with(self, due: tuple[RelearnedStructures, ...]) -> KnownStructures:
        history = self
        for turn in due:
            sequences = history.sequences if turn.sequences is None else turn.sequences
            charsets = _merged(history.charsets, turn.charsets)
            history = replace(history._put(turn.tables), charsets=charsets, sequences=sequences)
        turns = history.turns[len(due) :]
        # `before` makes some structures unknown. Each of `turns` has some of these structures, which are known from its
        # Lsn on. After the last of `turns`, the history is at the catalog's place. Then the statements in `unclear` no
        # longer matter: the catalog already shows their effects.
        return replace(history, turns=turns, unclear=history.unclear if turns else ())


def refined(logged: Table, known: Table | None) -> Table:
    """Returns the structure `logged`, which the log contains before rows (FULL metadata), completed from `known`.

    The log lacks unique keys, defaults and generated columns. The log calls MariaDB's UUID and INET types BINARY, and
    MariaDB's JSON type text. If `known` contradicts the log, it is from another time, and only its UUID and INET types
    are used.
    """
    if known is None:
        return logged
    if len(logged.columns) == len(known.columns) and all(map(_agree, logged.columns, known.columns)):
        return known
    types = {column.name: column.type for column in known.columns if column.type.kind in IDENTIFIERS}
    columns = tuple(
        replace(column, type=types[column.name]) if column.name in types and column.type.kind is Kind.BINARY else column
        for column in logged.columns
    )
    return replace(logged, columns=columns)


def structure_unknown(name: TableName, statement: str) -> Halted:
    """Returns the error for rows of a table whose columns are unknown."""
    return Halted(
        "structure-unknown",
        f"the table's structure is not known at this place, because of the statement: {statement[:200]}",
        where=Where(table=str(name)),
        todo=(
            "Start after that statement, or leave the table out. If you read the log without a task, you can give the "
            "structure with schema-from (a server or CREATE TABLE). With binlog_row_metadata=FULL, the source's log "
            "names the columns of all later rows"
        ),
    )


def _agree(logged: Column, known: Column) -> bool:
    """Whether, by their types, a column in the log and a recorded column can be the same column."""
    first, second = logged.type, known.type
    if logged.name != known.name:
        return False
    if second.kind in IDENTIFIERS:
        return first.kind is Kind.BINARY
    if first.is_text and second.is_text and first.charset and second.charset and first.charset != second.charset:
        return False
    same = (first.kind, first.unsigned, first.precision, first.scale, first.labels)
    return same == (second.kind, second.unsigned, second.precision, second.scale, second.labels)


def _merged(known: Mapping[_Name, _Value], changed: Mapping[_Name, _Value | None]) -> dict[_Name, _Value]:
    """Returns the mapping with its changes; None removes an entry."""
    merged: dict[_Name, _Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}
