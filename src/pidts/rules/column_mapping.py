r"""Changes values between source and target: DM's old column mappings, for tables that are merged.

- `add prefix`, `add suffix`: the argument is put before or after a text.
- `partition id`: an integer (or a text of digits) below 2**44 becomes a number that is unique among all merged tables:

      bit 63   0
      4 bits   the instance: argument 1, a number
      7 bits   the schema: the rest of its name after argument 2 (and argument 4, a separator)
      8 bits   the table: the rest of its name after argument 3 (and the separator)
      44 bits  the value

  If the argument of a part is "", the part is left out, and the later parts get the higher bits. If a name equals the
  part's argument, the part is 0. With `["1", "shop", "orders", "_"]`, `shop.orders` is (1, 0, 0) and
  `shop_2.orders_10` is (1, 2, 10).

Only one mapping applies to a table: a mapping for the table, otherwise one for the schema. It is an error if two
mappings of one kind match. NULL stays NULL, while DM stops at a NULL. If a column's type cannot store the new values,
the column gets another type on the target.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, ColumnType, ConfigError, Halted, Kind, Table, TableName, Where
from pidts.model.types import TEXTS
from pidts.rules.patterns import check, matches

PREFIX, SUFFIX, PARTITION_ID = "add prefix", "add suffix", "partition id"
EXPRESSIONS = (PREFIX, SUFFIX, PARTITION_ID)
MOST = 1 << 44
"""`partition id` maps only values below this limit."""

_BITS = (4, 7, 8)
_DIGITS = 19
"""The largest number of digits of an integer of 63 bits."""

_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, *TEXTS})
_SIZED = frozenset({Kind.CHAR, Kind.VARCHAR})
_LONGEST_CHAR = 255


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """One entry of `column-mappings`. As in DM, `source_column` has no effect; only `target_column` is read."""

    schema_pattern: str
    table_pattern: str
    target_column: str
    expression: str
    arguments: tuple[str, ...]
    source_column: str = ""
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        for pattern in (self.schema_pattern, *filter(None, [self.table_pattern])):
            check(pattern)
        if self.expression not in EXPRESSIONS:
            raise ConfigError(
                "bad-value",
                f"expression {self.expression!r} of a column mapping is none of {', '.join(EXPRESSIONS)}",
                todo="Write one of these names",
            )
        if not self.target_column:
            raise ConfigError(
                "missing-key",
                "a column mapping names no target-column",
                todo="Name the column that the mapping changes: target-column",
            )
        wanted = (3, 4) if self.expression == PARTITION_ID else (1,)
        if len(self.arguments) not in wanted:
            raise ConfigError(
                "bad-value",
                f"{self.expression!r} of a column mapping takes {' or '.join(map(str, wanted))} arguments, "
                f"not {len(self.arguments)}",
                todo="partition id: [instance, prefix of the schema, prefix of the table, separator]."
                if self.expression == PARTITION_ID
                else "",
            )
        if self.expression == PARTITION_ID and self.arguments[0]:
            _number(self.arguments[0], _BITS[0], f"the instance of column {self.target_column}", "")

    def fits(self, table: TableName) -> bool:
        """Whether the patterns match this table."""
        if not matches(self.schema_pattern, table.schema, case_sensitive=self.case_sensitive):
            return False
        return not self.table_pattern or matches(self.table_pattern, table.name, case_sensitive=self.case_sensitive)

    def mapped_table(self, table: Table) -> Table:
        """Returns the structure for the target; the same object if the mapping does not match the table."""
        if not self.fits(table.name):
            return table
        column = self._column(table)
        if self.expression == PARTITION_ID:
            self.base(table.name)
        target_table = self.mapped_column(column, table.name)
        if target_table is column:
            return table
        return replace(table, columns=tuple(target_table if item is column else item for item in table.columns))

    def mapped_column(self, column: Column, table: TableName) -> Column:
        """Returns a column's definition for the target, in the table or in a statement on it."""
        if not self.fits(table) or column.name != self.target_column:
            return column
        wanted = self._type(column, table)
        return column if wanted == column.type else replace(column, type=wanted)

    def mapped(self, rows: pa.StructArray, table: Table) -> pa.StructArray:
        """Returns the rows with their new values; the same object if the mapping does not match the table.

        The result is null where `rows` is null. A value that cannot be mapped halts the table: without the mapping, the
        row might get the key of another table's row.
        """
        if not self.fits(table.name):
            return rows
        column = self._column(table)
        place, target_table = table.columns.index(column), self.mapped_column(column, table.name)
        fields = [rows.type.field(at) for at in range(rows.type.num_fields)]
        fields[place] = pa.field(target_table.name, target_table.type.arrow)
        if rows.null_count == len(rows):
            return pa.nulls(len(rows), pa.struct(fields))
        columns = [rows.field(at) for at in range(rows.type.num_fields)]
        # If the row is null, its values are undefined, and a check must ignore them.
        columns[place] = self._values(pc.struct_field(rows, place), table, target_table)
        mask = rows.is_null() if rows.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    def is_reversible(self, table: Table) -> bool:
        """Whether the mapped value shows the original: not for texts of digits, since `7` and `07` are one number."""
        return self.expression != PARTITION_ID or self._column(table).type.is_integer

    def unmapped(self, values: pa.Array | pa.ChunkedArray, table: Table) -> pa.Array | pa.ChunkedArray:
        """Returns the source's values for the target's values; null for values that this table's rows cannot have."""
        argument, kind = self.arguments[0], self._column(table).type.arrow
        if self.expression == PREFIX:
            own = pc.utf8_slice_codeunits(values, len(argument))
            return pc.if_else(pc.starts_with(values, argument), own, pa.scalar(None, kind))
        if self.expression == SUFFIX:
            own = pc.replace_substring_regex(values, f"(?s){re.escape(argument)}\\z", "") if argument else values
            return pc.if_else(pc.ends_with(values, argument), own, pa.scalar(None, kind))
        base = self.base(table.name)
        bits = kind.bit_width - pa.types.is_signed_integer(kind)
        most = base + min(MOST, 1 << bits) - 1
        inside = pc.and_(pc.greater_equal(values, base), pc.less_equal(values, most))
        own = pc.if_else(inside, values, pa.scalar(None, values.type))
        return pc.cast(pc.subtract(own, pa.scalar(base, values.type)), kind)

    def base(self, name: TableName) -> int:
        """Returns the number that `partition id` adds to each value of this table."""
        instance, schema, table, separator = (*self.arguments, "")[:4]
        parts = (
            _number(instance, _BITS[0], "the instance", str(name)) if instance else None,
            self._suffix(name.schema, schema, separator, _BITS[1], name) if schema else None,
            self._suffix(name.name, table, separator, _BITS[2], name) if table else None,
        )
        base, shift = 0, 63
        for part, bits in zip(parts, _BITS, strict=True):
            if part is not None:
                shift -= bits
                base |= part << shift
        return base

    def _suffix(self, text: str, prefix: str, separator: str, bits: int, name: TableName) -> int:
        start = prefix + separator
        same = str if self.case_sensitive else str.lower
        if same(text) == same(prefix):
            return 0
        if not same(text).startswith(same(start)):
            raise ConfigError(
                "bad-partition-id",
                f"the arguments of 'partition id' demand a name that begins with {start}, not {text}",
                where=Where(table=str(name)),
                todo="Correct the arguments, or the patterns of this column mapping.",
            )
        return _number(text[len(start) :], bits, f"what follows {start} in the name {text}", str(name))

    def _column(self, table: Table) -> Column:
        for column in table.columns:
            if column.name == self.target_column:
                return column
        raise ConfigError(
            "unknown-name",
            f"a column mapping is for column {self.target_column}, which the table does not have",
            where=Where(table=str(table.name)),
            todo="Change target-column, or the patterns of this column mapping.",
        )

    def _type(self, column: Column, table: TableName) -> ColumnType:
        kind = column.type
        if self.expression == PARTITION_ID and kind.is_integer:
            return kind if kind.kind is Kind.BIGINT else replace(kind, kind=Kind.BIGINT, length=None)
        if kind.kind not in _TEXTS:
            raise ConfigError(
                "bad-value",
                f"{self.expression!r} is not possible for column {column.name}: it is {kind.kind}",
                where=Where(table=str(table)),
                todo="The column must be a text"
                + (" of digits, or an integer." if self.expression == PARTITION_ID else "."),
            )
        if kind.kind not in _SIZED or kind.length is None:
            return kind
        added = self.expression != PARTITION_ID
        length = kind.length + len(self.arguments[0]) if added else max(kind.length, _DIGITS)
        grown = Kind.VARCHAR if length > _LONGEST_CHAR else kind.kind
        return replace(kind, kind=grown, length=length)

    def _values(self, values: pa.Array, table: Table, target_table: Column) -> pa.Array:
        if self.expression == PREFIX:
            return pc.binary_join_element_wise(self.arguments[0], values, "")
        if self.expression == SUFFIX:
            return pc.binary_join_element_wise(values, self.arguments[0], "")
        numbers = _digits(values, table, target_table) if target_table.type.is_text else values
        least, most = (end.as_py() for end in pc.min_max(numbers).values())
        if least is not None and not 0 <= least <= most < MOST:
            wide = pc.cast(numbers, pa.uint64() if pa.types.is_unsigned_integer(numbers.type) else pa.int64())
            wrong = pc.or_(pc.less(wide, pa.scalar(0, wide.type)), pc.greater_equal(wide, pa.scalar(MOST, wide.type)))
            raise _unfit(values, wrong, table, target_table, f"'partition id' allows values from 0 to {MOST - 1}")
        # The parts do not overlap, so adding is the same as setting bits.
        made = pc.add(pc.cast(numbers, pa.int64()), self.base(table.name))
        return pc.cast(made, target_table.type.arrow)


def mapping_of(mappings: Sequence[ColumnMapping], name: TableName) -> ColumnMapping | None:
    """Returns the mapping that applies to a table; None if there is none."""
    fitting = [mapping for mapping in mappings if mapping.fits(name)]
    fitting = [mapping for mapping in fitting if mapping.table_pattern] or fitting
    if len(fitting) > 1:
        raise ConfigError(
            "ambiguous-mapping",
            f"{len(fitting)} column mappings fit this table",
            where=Where(table=str(name)),
            todo="Change their patterns, so that only one of them fits the table.",
        )
    return fitting[0] if fitting else None


def _number(text: str, bits: int, what: str, table: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 1 << bits:
        return int(text)
    raise ConfigError(
        "bad-partition-id",
        f"{what} must be a number below {1 << bits} for 'partition id', not {text!r}",
        where=Where(table=table),
        todo="Correct the arguments, or the patterns of this column mapping.",
    )


def _digits(values: pa.Array, table: Table, target_table: Column) -> pa.Array:
    wrong = pc.invert(pc.match_substring_regex(values, r"\A[+-]?[0-9]{1,18}\z"))
    if pc.any(wrong).as_py():
        raise _unfit(values, wrong, table, target_table, "'partition id' allows only texts of digits")
    return pc.cast(pc.replace_substring_regex(values, r"\A\+", ""), pa.int64())


def _unfit(values: pa.Array, wrong: pa.Array, table: Table, target_table: Column, what: str) -> Halted:
    value = values[pc.index(wrong, value=True).as_py()].as_py()
    return Halted(
        "value-not-mapped",
        f"{what}, but column {target_table.name} holds {value!r}",
        where=Where(table=str(table.name)),
        todo="Change the row on the source if it is wrong there. Otherwise remove the column mapping, have the route "
        "extract a column, and put this column into the target's key.",
    )
