"""Drops the changes of a table that match an expression filter.

A rule drops a change if the rule's expression is TRUE for the row, but not if the expression is FALSE or NULL. One rule
is enough to drop a change. A rule for updates may have two expressions: one for the old row, and one for the new row.
Then both expressions must be TRUE. If the table lacks a column of an expression, the expression is FALSE, as in DM: a
rule may be older or newer than a column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Column, ConfigError, Halted, KeptRows, Lsn, Op, Table, TableName, Where
from pidts.rules.expressions.rule import ExpressionRule, parsed, raise_all
from pidts.rules.expressions.tree import CLOCK, ColumnRef, NotSupportedError, calls_of
from pidts.rules.expressions.tree import columns_of as names_of
from pidts.rules.expressions.typed import check_zone, typed
from pidts.rules.expressions.values import NOW, Expr, Rows, is_true, truth

Mask: TypeAlias = npt.NDArray[np.bool_]

SIZE = ""
"""The name of an additional column, which gives an expression without columns the number of rows."""


@dataclass(frozen=True, slots=True)
class ExpressionFilter:
    """The expression filter rules of a task; without rules it does nothing."""

    rules: tuple[ExpressionRule, ...] = ()
    time_zone: str = "+00:00"
    """The time zone in which TIMESTAMP columns are read."""

    def __post_init__(self) -> None:
        if self.rules:
            check_zone(self.time_zone)

    def concerns(self, name: TableName) -> bool:
        """Whether a rule concerns this table."""
        return any(rule.concerns(name) for rule in self.rules)

    def check(self, table: Table) -> None:
        """Raises if an expression cannot be computed exactly with the types of this table's columns."""
        errors = []
        for rule in self.rules:
            for text in rule.texts if rule.concerns(table.name) else ():
                try:
                    _condition(rule, text, table, self.time_zone)
                except ConfigError as error:
                    errors.append(error)
        raise_all(errors)

    def asks_for_time(self, name: TableName) -> bool:
        """Whether some expression for the table uses the time of a change."""
        return any(
            call.name in CLOCK
            for rule in self.rules
            if rule.concerns(name)
            for text in rule.texts
            for call in calls_of(parsed(text))
        )

    def dropped(
        self, batch: ChangeBatch, besides: Collection[Op] = (), times: pa.Array | None = None
    ) -> pa.BooleanArray | None:
        """Returns TRUE for each change that a rule drops; None if no rule applies to any of the changes.

        Changes of the kinds in `besides` are not checked, since the event filter drops them. `times` has the times of
        the changes in the source's log, for expressions that use them.
        """
        rules = [
            rule for rule in self.rules if rule.concerns(batch.table.name) and _op_and_texts(rule)[0] not in besides
        ]
        if not rules or not len(batch):
            return None
        found = [self._by_rule(rule, batch, times) for rule in rules]
        masks = [mask for mask in found if mask is not None]
        return reduce(pc.or_, masks) if masks else None

    def _by_rule(self, rule: ExpressionRule, batch: ChangeBatch, times: pa.Array | None) -> pa.BooleanArray | None:
        op, texts = _op_and_texts(rule)
        mine = pc.equal(batch.rows.column("op"), pa.scalar(op, pa.int8()))
        chosen = KeptRows(mine)
        if not chosen.count:
            return None
        of = None if chosen.count == len(batch) else chosen
        conditions = [(_condition(rule, text, batch.table, self.time_zone), side) for side, text in texts]
        truths = [_true(condition, side, batch, of, times) for condition, side in conditions]
        both = reduce(pc.and_, truths)
        return both if of is None else pc.replace_with_mask(mine, mine, both)


def _op_and_texts(rule: ExpressionRule) -> tuple[Op, list[tuple[str, str]]]:
    """Returns the operation that a rule concerns, and the rule's expressions with the images that they read."""
    if rule.insert:
        return Op.INSERT, [("after", rule.insert)]
    if rule.delete:
        return Op.DELETE, [("before", rule.delete)]
    sides = [("before", rule.update_old), ("after", rule.update_new)]
    return Op.UPDATE, [(side, text) for side, text in sides if text]


@dataclass(frozen=True, slots=True)
class _Condition:
    expr: Expr
    columns: tuple[Column, ...]


@lru_cache(maxsize=1024)
def _condition(rule: ExpressionRule, text: str, table: Table, zone: str) -> _Condition | None:
    by_name = {column.name.lower(): column for column in table.columns}
    node = parsed(text)
    names = [reference.name.lower() for reference in names_of(node)]
    if not by_name.keys() >= set(names):
        return None

    def find(reference: ColumnRef) -> Column:
        return by_name[reference.name.lower()]

    try:
        expr = typed(node, find, zone)
        truth(expr)
    except NotSupportedError as error:
        raise rule.not_supported(text, error) from None
    except RecursionError:
        raise rule.refusal("bad-expression", "an expression is nested too deeply") from None
    return _Condition(expr, tuple(by_name[name] for name in dict.fromkeys(names)))


def _true(
    condition: _Condition | None, side: str, batch: ChangeBatch, of: KeptRows | None, times: pa.Array | None
) -> pa.BooleanArray:
    count = len(batch) if of is None else of.count
    if condition is None:
        return pa.repeat(pa.scalar(False), count)  # noqa: FBT003 - the value
    found = is_true(truth(condition.expr)(columns_of_images(batch, side, condition.columns, of, times)))
    return pa.repeat(found, count) if isinstance(found, pa.Scalar) else found


def columns_of_images(
    batch: ChangeBatch, side: str, columns: Sequence[Column], of: KeptRows | None, times: pa.Array | None
) -> Rows:
    """Returns the columns of the images `before` or `after` by name.

    The result has only the changes in `of` (None: all changes). Each of these changes must have such an image. `times`
    has the times of all changes, for expressions that use them. With binlog_row_image MINIMAL or NOBLOB, an update's
    new row lacks unchanged columns: their values are in the old row, or not in the log.
    """
    images = _Images(batch, of)
    rows: dict[str, pa.Array] = {SIZE: images.taken(batch.rows.column("op"))}
    if times is not None:
        rows[NOW] = images.taken(times)
    for column in columns:
        values = images.values(side, column)
        if batch.is_partial:
            values = _completed(images, side, column, values)
        rows[column.name] = values
    return rows


def is_true_of_images(rule: ExpressionRule, batch: ChangeBatch, side: str, time_zone: str) -> Mask:
    """Returns, for each change, whether the rule's only expression is TRUE for its `side` image (before or after).

    The images must have all columns of the expression. For a change without such an image, the result has no meaning.
    If the table lacks a column of the expression, an error is raised.
    """
    (text,) = rule.texts
    condition = _condition(rule, text, batch.table, time_zone)
    if condition is None:
        raise rule.refusal("bad-expression", f"{batch.table.name} lacks a column of the expression {text!r}")
    images = batch.rows.column(side)
    rows: dict[str, pa.Array] = {SIZE: batch.rows.column("op")}
    for column in condition.columns:
        rows[column.name] = pc.struct_field(images, [images.type.get_field_index(column.name)])
    found = is_true(truth(condition.expr)(rows))
    return np.full(len(batch), found.as_py()) if isinstance(found, pa.Scalar) else np.asarray(found, np.bool_)


@dataclass(frozen=True, slots=True)
class _Images:
    """The images of some changes of a batch. Only requested columns are copied."""

    batch: ChangeBatch
    of: KeptRows | None

    def taken(self, values: pa.Array) -> pa.Array:
        return values if self.of is None else self.of.of(values)

    def values(self, side: str, column: Column) -> pa.Array:
        images = self.batch.rows.column(side)
        return self.taken(pc.struct_field(images, [images.type.get_field_index(column.name)]))

    def held(self, side: str, column: Column) -> pa.BooleanArray:
        return _held(self.taken(self.batch.rows.column("partial")), self.batch.table, side, column)


def _completed(images: _Images, side: str, column: Column, values: pa.Array) -> pa.Array:
    batch = images.batch
    held = images.held(side, column)
    if side == "after":
        before = pc.and_(images.held("before", column), images.taken(batch.rows.column("before").is_valid()))
        values = pc.if_else(pc.or_(held, pc.invert(before)), values, images.values("before", column))
        held = pc.or_(held, before)
    if not pc.all(held).as_py():
        place = pc.indices_nonzero(pc.invert(held))[0].as_py()
        lsn = images.taken(batch.rows.column("lsn"))[place].as_py()
        raise Halted(
            "partial-row-image",
            f"an expression filter asks for the column {column.name}, whose value is not in the log for this change",
            where=Where(table=str(batch.table.name), position=str(Lsn.from_bytes(lsn))),
            todo="Run SET GLOBAL binlog_row_image = FULL on the source; to get past this change, remove the filter",
        )
    return values


def _held(presence: pa.Array, table: Table, side: str, column: Column) -> pa.BooleanArray:
    """Returns which images have the column. `presence` has the bitmaps of partial images, NULL for complete images."""
    width = (len(table.columns) + 7) // 8
    place = table.columns.index(column)
    first = place // 8
    if side == "after":  # if there is a before image, its bitmap comes first
        has_before = pc.equal(pc.binary_length(presence), 2 * width)
        byte = pc.if_else(
            has_before,
            pc.binary_slice(presence, width + first, width + first + 1),
            pc.binary_slice(presence, first, first + 1),
        )
    else:
        byte = pc.binary_slice(presence, first, first + 1)
    having = [bytes([bits]) for bits in range(256) if bits >> (place % 8) & 1]
    return pc.or_(presence.is_null(), pc.is_in(byte, value_set=pa.array(having, pa.binary())))
