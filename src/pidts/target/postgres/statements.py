"""The SQL that writes one table; rows are passed as one array for each column.

**With a key**: DELETE by the key, then INSERT with ON CONFLICT on only the key. If another row has the same value in
another unique key, this is an error, and no row is overwritten.

If the transaction has read and locked the rows, an UPDATE of the changed columns writes less (`update`).

If the target must have certain rows, the statements change or remove exactly these rows, and count them. Another number
is an error, and the server executes no later statement, not even COMMIT.

**Without a key** a row is found by all its columns, and the requested number of copies is removed. The values of the
source and of the target are converted to the target's type. NULL equals NULL. Text is compared by its bytes, and JSON
by its text as jsonb, which is the same for equal documents. Rows that become equal by the conversion are counted
together: for example, different zero dates are all NULL on PostgreSQL. The rows are found by a hash of all columns, or
by an index that begins with a selective column.

**In safe mode** rows that have a unique value of a new row, but another key, are removed first. The rows are found by
each unique index over plain columns that follows from a unique key of the source. For any other index, the source may
have two rows with the same values. For the same reason, NULL equals no value, and texts are equal only byte by byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pidts.model import Halted, Kind, Table, Where
from pidts.target.fit import CHANGED_TODO
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.encode.arrays import Element
from pidts.target.postgres.encode.columns import Form, form
from pidts.target.postgres.shape import PgColumn, PgKey, PgTable

_HASHED = frozenset(
    {
        "smallint",
        "integer",
        "bigint",
        "numeric",
        "real",
        "double precision",
        "boolean",
        "bytea",
        "date",
        "interval",
        "timestamp without time zone",
        "timestamp with time zone",
        "uuid",
        "inet",
    }
)
"""Types with an exact equality and a hash. Values of all other types are compared as texts."""
_TEXTS = frozenset({"text", "character varying", "bpchar"})

UNEXPECTED = "22012"
"""The SQLSTATE of a division by zero: a statement raises it if the rows are not as the statement expects them."""


@dataclass(frozen=True, slots=True)
class Statements:
    """All statements for writing one table; they do not depend on the rows."""

    table: Table
    forms: dict[str, Form]
    delete: str
    """Deletes by the key; without a key, by all columns, and the last array has the numbers of copies."""
    insert: str
    add: str
    """Adds rows that are new."""
    copy: str
    """Adds rows that are new, as a COPY in its binary format."""
    give_way: tuple[tuple[tuple[str, ...], str], ...]
    """The statements that remove rows in safe mode, each preceded by the columns whose values are its parameters."""

    @property
    def delete_columns(self) -> tuple[str, ...]:
        """Returns the columns in the order of the placeholders of `delete`."""
        return self.table.identity or self.written

    @property
    def written(self) -> tuple[str, ...]:
        """Returns the columns that are written: all except those that the target computes."""
        return tuple(name for name, each in self.forms.items() if not each.target.generated)

    @property
    def settable(self) -> tuple[str, ...]:
        """Returns the written columns that an UPDATE may set: not the key, and not ALWAYS identity columns."""
        fixed = {name for name, each in self.forms.items() if each.target.always_identity}
        return tuple(name for name in self.written if name not in fixed and name not in self.table.identity)

    def update(self, columns: Sequence[str]) -> str:
        """Returns the statement that sets some columns of existing rows. Its parameters are the key and the columns."""
        keys, changed = ([self.forms[name] for name in names] for names in (self.table.identity, columns))
        sets = ", ".join(f"{identifier(each.column.name)} = {_value(each)}" for each in changed)
        return f"UPDATE {qualified(self.table.name)} t SET {sets} FROM {_rows([*keys, *changed])} WHERE {_match(keys)}"

    @property
    def can_expect(self) -> bool:
        """Whether the server treats only identical values as equal, and an UPDATE has columns to set."""
        written = (self.forms[name] for name in self.written)
        return bool(self.table.identity and self.settable) and all(map(_is_exact, written))

    def expecting_none(self) -> str:
        """Returns the statement that fails if a row has one of these keys. Its parameters are the keys and 0."""
        return _counted(self.delete, len(self.table.identity))

    def remove(self) -> str:
        """Returns the statement that removes rows. Its parameters are all written columns and the number of rows."""
        forms = [self.forms[name] for name in self.written]
        given = _rows(forms, [f"c{number}" for number in range(len(forms))])
        sql = f"DELETE FROM {qualified(self.table.name)} t USING {given} WHERE {_same(self.table, forms)}"
        return _counted(sql, len(forms))

    def change(self, columns: Sequence[str]) -> str:
        """Returns the statement that sets some columns.

        The parameters are arrays: for each written column, the values before the change; for each of `columns`, the new
        values. The last parameter is the number of rows.
        """
        before, changed = ([self.forms[name] for name in names] for names in (self.written, columns))
        sets = ", ".join(
            f"{identifier(each.column.name)} = {each.value(f's.n{number}')}" for number, each in enumerate(changed)
        )
        names = [*(f"c{number}" for number in range(len(before))), *(f"n{number}" for number in range(len(changed)))]
        given, same = _rows([*before, *changed], names), _same(self.table, before)
        sql = f"UPDATE {qualified(self.table.name)} t SET {sets} FROM {given} WHERE {same}"
        return _counted(sql, len(before) + len(changed))


def statements(table: Table, shape: PgTable) -> Statements:
    """Returns the statements for a table whose shape fits."""
    forms = {column.name: form(column, found_column(shape, column.name)) for column in table.columns}
    written = {name: each for name, each in forms.items() if not each.target.generated}
    return Statements(
        table,
        forms,
        _delete(table, forms) if table.identity else _remove(table, written, {key.columns[0] for key in shape.keys}),
        _insert(table, written, _on_conflict(table, written)),
        _insert(table, written, ""),
        f"COPY {qualified(table.name)} ({', '.join(map(identifier, written))}) FROM STDIN (FORMAT binary)",
        tuple(_give_way(table, forms, key) for key in shape.keys if _may_collide(table, key)),
    )


def found_column(shape: PgTable, name: str) -> PgColumn:
    """Returns the target's column of this name."""
    found = shape.column(name)
    if found is None:
        what = f"the target's table has no column {name}"
        raise Halted("target-shape", what, where=Where(table=str(shape.name)), todo=CHANGED_TODO)
    return found


def _rows(forms: Sequence[Form], names: Sequence[str] = (), *, counted: bool = False) -> str:
    """Returns SQL that turns the arrays into rows `s`. Counted rows also have the columns `times` and `place`."""
    arrays = [f"${place}::{each.element.sql}[]" for place, each in enumerate(forms, 1)]
    names = names or [identifier(each.column.name) for each in forms]
    if not counted:
        return f"unnest({', '.join(arrays)}) AS s({', '.join(names)})"
    columns = ", ".join((*(f"c{number}" for number in range(len(forms))), "times", "place"))
    return f"unnest({', '.join(arrays)}, ${len(forms) + 1}::bigint[]) WITH ORDINALITY AS s({columns})"


def _value(each: Form) -> str:
    return each.value(f"s.{identifier(each.column.name)}")


def _match(forms: Sequence[Form]) -> str:
    return " AND ".join(f"t.{identifier(each.column.name)} = {_value(each)}" for each in forms)


def _same(table: Table, forms: Sequence[Form]) -> str:
    """Returns the condition that all columns equal `s.c0`, `s.c1`, ... It allows the use of the key's index only."""
    equal = dict.fromkeys(table.identity, "=")
    return " AND ".join(
        f"t.{identifier(each.column.name)} {equal.get(each.column.name, 'IS NOT DISTINCT FROM')} "
        f"{each.value(f's.c{number}')}"
        for number, each in enumerate(forms)
    )


def _counted(sql: str, arrays: int) -> str:
    """Returns a statement that fails by a division by 0 if it does not find as many rows as the last parameter says."""
    return f"WITH done AS ({sql} RETURNING 1) SELECT 1 / (count(*) = ${arrays + 1}::bigint)::integer FROM done"


def reads_exactly(form: Form) -> bool:
    """Whether values that are read as equal are equal on the target. Two `timestamp` values may be read as one DATE."""
    kind, base = form.column.type, form.target.base
    if form.element is not Element.TEXT:
        return True
    return base in _TEXTS if kind.is_text else base == "numeric" and (kind.is_integer or kind.kind is Kind.DECIMAL)


def _is_exact(form: Form) -> bool:
    """Whether two values are equal for the server only if they have the same bytes in the log."""
    return reads_exactly(form) and form.target.deterministic and form.column.type.kind is not Kind.JSON


def _delete(table: Table, forms: dict[str, Form]) -> str:
    keys = [forms[name] for name in table.identity]
    return f"DELETE FROM {qualified(table.name)} t USING {_rows(keys)} WHERE {_match(keys)}"


def _insert(table: Table, forms: dict[str, Form], on_conflict: str) -> str:
    names = ", ".join(map(identifier, forms))
    values = ", ".join(map(_value, forms.values()))
    return (
        f"INSERT INTO {qualified(table.name)} ({names}) OVERRIDING SYSTEM VALUE "
        f"SELECT {values} FROM {_rows(list(forms.values()))}{on_conflict}"
    )


def _on_conflict(table: Table, forms: dict[str, Form]) -> str:
    if not table.identity:
        return ""
    settable = [identifier(name) for name, each in forms.items() if not each.target.always_identity]
    updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in settable)
    action = f"UPDATE SET {updates}" if updates else "NOTHING"
    return f" ON CONFLICT ({', '.join(map(identifier, table.identity))}) DO {action}"


def _remove(table: Table, forms: dict[str, Form], indexed: Collection[str]) -> str:
    """Returns the statement that removes copies of rows.

    If the target has too few copies of some rows, the statement returns three numbers for the first of these rows: its
    index, the wanted copies and the found copies. A `ctid` is unique only within a partition (`part`).
    """
    all_forms = list(forms.values())
    wanted = [_comparable(each, _stored(each, f"s.c{number}")) for number, each in enumerate(all_forms)]
    there = [_comparable(each, f"t.{identifier(each.column.name)}") for each in all_forms]
    names = [f"c{number}" for number in range(len(all_forms))]
    given = ", ".join(f"{value} AS {name}" for value, name in zip(wanted, names, strict=True))
    exact = " AND ".join(f"{value} IS NOT DISTINCT FROM w.{name}" for value, name in zip(there, names, strict=True))
    hashed = "pg_catalog.hash_record_extended(ROW({}), 0)".format
    by_hash = f"{hashed(', '.join(there))} = {hashed(', '.join(f'w.{name}' for name in names))}"
    found = [by_hash, exact, *_by_index(all_forms, indexed)]
    target = qualified(table.name)
    return (
        f"WITH w AS MATERIALIZED (SELECT {given}, sum(s.times) AS times, min(s.place) AS number "
        f"FROM {_rows(all_forms, counted=True)} GROUP BY {', '.join(map(str, range(1, len(names) + 1)))}), "
        "gone AS (SELECT t.tableoid AS part, t.ctid AS place, w.times, w.number, "
        f"row_number() OVER (PARTITION BY w.number) AS copy FROM {target} t JOIN w ON {' AND '.join(found)}), "
        f"done AS (DELETE FROM {target} t USING gone WHERE t.ctid = gone.place AND t.tableoid = gone.part "
        "AND gone.copy <= gone.times RETURNING gone.number), "
        "found AS (SELECT number, count(*) AS times FROM done GROUP BY 1) "
        "SELECT w.number, w.times::bigint, coalesce(found.times, 0) FROM w LEFT JOIN found USING (number) "
        "WHERE coalesce(found.times, 0) < w.times ORDER BY 1 LIMIT 1"
    )


def _by_index(forms: Sequence[Form], indexed: Collection[str]) -> Iterator[str]:
    """Yields conditions that repeat the equality in a form for which the server uses an index."""
    for number, each in enumerate(forms):
        if each.column.name in indexed and each.target.base in _HASHED:
            name = f"t.{identifier(each.column.name)}"
            is_null = "" if each.target.not_null else f" OR ({name} IS NULL AND w.c{number} IS NULL)"
            yield f"({name} = w.c{number}{is_null})"


def _stored(each: Form, name: str) -> str:
    """Returns the array's element as the column would store it: rounded as the column rounds, but never shortened."""
    value = each.value(name)
    rounds = each.target.type.startswith(("numeric", "timestamp", "interval", "time"))
    return f"({value})::{each.target.type}" if rounds else f"({value})"


def _comparable(each: Form, value: str) -> str:
    base = each.target.base
    if base in ("json", "jsonb"):
        return f'({value})::jsonb::text COLLATE "C"'
    return value if base in _HASHED else f'({value})::text COLLATE "C"'


def _may_collide(table: Table, key: PgKey) -> bool:
    columns, known = set(key.columns), {column.name for column in table.columns}
    if not key.unique or columns == set(table.identity) or not known.issuperset(columns):
        return False
    return any(columns.issuperset(one.columns) for one in table.keys if one.primary or one.declared_unique)


def _give_way(table: Table, forms: dict[str, Form], key: PgKey) -> tuple[tuple[str, ...], str]:
    names = tuple(dict.fromkeys((*key.columns, *table.identity)))
    taken = [forms[name] for name in names]
    same = " AND ".join(_match([forms[name]]) + _same_bytes(forms[name]) for name in key.columns)
    other = " OR ".join(f"t.{identifier(name)} <> {_value(forms[name])}" for name in table.identity) or "true"
    return names, f"DELETE FROM {qualified(table.name)} t USING {_rows(taken)} WHERE {same} AND ({other})"


def _same_bytes(each: Form) -> str:
    """Returns the condition that a text is the same byte by byte; empty if the target treats no other text as equal."""
    if not each.target.is_loose(each.column):
        return ""
    name = identifier(each.column.name)
    return f' AND t.{name}::text COLLATE "C" = s.{name}'
