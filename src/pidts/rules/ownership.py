"""Finds the zone that owns a row, for tasks whose setting `pidts.conflict` is `owner`.

Each range names a table, or all tables of a schema, and a zone. A range with a condition contains the rows for which
the condition is TRUE. A range without a condition contains all rows of the table that are in no other range. Ranges for
a schema apply to a table only if no range names the table.

If the conditions of several zones are TRUE for a row, or if the row is in no range, it has no owner. Then every write
to the row is set aside as a row lock. So a mistake in the ranges may lock rows, but loses no change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidts.model import ChangeBatch, ConfigError, RangeOwner, Table, TableName, Where, change_schema
from pidts.rules.expressions.filter import Mask, is_true_of_images
from pidts.rules.expressions.rule import ExpressionRule, parsed
from pidts.rules.expressions.tree import CLOCK, calls_of, columns_of
from pidts.rules.expressions.typed import check_zone

ALL = "*"
"""In a range, the name of a table that means all tables of the schema."""

Places: TypeAlias = npt.NDArray[np.int64]
"""For each row, the index of its owner among the zones of its table, or `NOBODY`, or `SEVERAL`."""
NOBODY, SEVERAL = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRange:
    """The rows of a table that one zone owns."""

    schema: str
    table: str
    zone: str
    where: str = ""
    """A condition on a row. Empty: the range has all rows that are in no other range of the table."""
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not self.where:
            return
        if self.table == ALL:
            raise self._refusal("a condition needs the name of one table")
        for call in calls_of(parsed(self.rule.texts[0])):
            if call.name in CLOCK:
                raise self._refusal(f"the owner of a row cannot depend on the time: {call.name}")

    @property
    def rule(self) -> ExpressionRule:
        """Returns the condition as a rule. Creating the rule checks the names in the condition."""
        return ExpressionRule(schema=self.schema, table=self.table, insert=self.where, file=self.file, line=self.line)

    @property
    def columns(self) -> frozenset[str]:
        """Returns the columns in the condition, in lower case."""
        return frozenset(one.name.lower() for one in columns_of(parsed(self.where))) if self.where else frozenset()

    def concerns(self, name: TableName) -> bool:
        """Whether the range names this table; case does not matter, as in expression filters."""
        return (self.schema.lower(), self.table.lower()) == (name.schema.lower(), name.name.lower())

    def is_range(self, other: OwnedRange) -> bool:
        """Whether this is the same range as another entry; the zones do not matter."""
        mine, theirs = ((one.schema.lower(), one.table.lower(), " ".join(one.where.split())) for one in (self, other))
        return mine == theirs

    def _refusal(self, what: str) -> ConfigError:
        where = Where(table=f"{self.schema}.{self.table}", file=self.file, line=self.line)
        return ConfigError("bad-expression", what, where=where, todo="Correct pidts.owners in the task file")

    def __str__(self) -> str:
        condition = f" where {self.where}" if self.where else ""
        return f"{self.schema}.{self.table}{condition}"


@dataclass(frozen=True, slots=True)
class ImageOwners:
    """For each change of a batch, the zone that owns the row in its before image, or in its after image."""

    zones: tuple[str, ...]
    places: Places

    def names(self, place: int) -> str:
        """Returns the words about a row's owner for a message, such as `zone a owns`."""
        found = int(self.places[place])
        if found == SEVERAL:
            return f"several of the zones {', '.join(self.zones)} own by their conditions"
        if found != NOBODY and not self.zones[found]:
            return "no zone owns while its range moves to another zone"
        return "no zone owns" if found == NOBODY else f"zone {self.zones[found]} owns"


@dataclass(frozen=True, slots=True)
class Owners:
    """The zones that own rows, by ranges; without ranges, no zone owns rows."""

    ranges: tuple[OwnedRange, ...] = ()
    time_zone: str = "+00:00"
    """The time zone in which conditions read TIMESTAMP columns."""

    def __post_init__(self) -> None:
        if self.ranges:
            check_zone(self.time_zone)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def zones(self) -> frozenset[str]:
        """Returns all zones that own rows."""
        return frozenset(one.zone for one in self.ranges)

    def of(self, name: TableName) -> tuple[OwnedRange, ...]:
        """Returns the ranges of a table."""
        named = tuple(one for one in self.ranges if one.concerns(name))
        return named or tuple(one for one in self.ranges if one.concerns(replace(name, name=ALL)))

    def sole(self, name: TableName) -> str:
        """Returns the zone that owns all rows of a table; empty if several zones do, or none."""
        ranges = self.of(name)
        zones = {one.zone for one in ranges}
        return zones.pop() if len(zones) == 1 and any(not one.where for one in ranges) else ""

    def zone_of(self, schema: str, table: str, where: str) -> str:
        """Returns the zone of a range; empty if there is none. A table without ranges has the schema's range."""
        wanted = OwnedRange(schema=schema, table=table, zone="", where=where)
        named = [one for one in self.ranges if one.is_range(wanted)]
        if not named and not where and not any(one.concerns(TableName(schema, table)) for one in self.ranges):
            named = [one for one in self.ranges if one.concerns(TableName(schema, ALL))]
        return named[0].zone if named else ""

    def moved(self, records: Iterable[RangeOwner]) -> Owners:
        """Returns the owners after the recorded moves of ranges. The task files may not contain these moves yet.

        An operator may have changed the ranges in the task files after a recorded move. Then the task files decide. If
        they name another zone for the moved range than the record, an error is raised.
        """
        ranges = list(self.ranges)
        for record in records:
            zone = self.zone_of(record.schema, record.table, record.where)
            if record.ranges != self.text():
                if zone not in {"", record.zone}:
                    self._demand_followed(record, zone)
                continue
            now = OwnedRange(schema=record.schema, table=record.table, zone=record.zone, where=record.where)
            ranges = [one for one in ranges if not one.is_range(now)] + [now]
        return self if ranges == list(self.ranges) else replace(self, ranges=tuple(ranges))

    def _demand_followed(self, record: RangeOwner, zone: str) -> None:
        is_moving = "" if record.settled else ", and a move is under way"
        raise ConfigError(
            "owners-differ",
            f"pidts.owners names zone {zone} for {record}, which moved to zone {record.zone or record.to}{is_moving}",
            where=Where(table=f"{record.schema}.{record.table}"),
            todo=f"Write zone: {record.zone or record.to} for this range in the files of all zones. Or move the range "
            "back before you change the files: run pidts zones move FILE RANGE --to ZONE",
        )

    def columns(self, name: TableName) -> frozenset[str]:
        """Returns the columns that decide which zone owns a row, in lower case."""
        return frozenset[str]().union(*(one.columns for one in self.of(name)))

    def owned(self, batch: ChangeBatch, side: str) -> ImageOwners:
        """Returns the owner of each change's row, by its image `side` (before or after).

        For a change without such an image, the result has no meaning.
        """
        ranges = self.of(batch.table.name)
        zones = tuple(sorted({one.zone for one in ranges}))
        places = np.full(len(batch), NOBODY, np.int64)
        masks: dict[str, Mask] = {}
        rest = ""
        for one in ranges:
            if one.where:
                found = is_true_of_images(one.rule, batch, side, self.time_zone)
                masks[one.zone] = masks[one.zone] | found if one.zone in masks else found
            else:
                rest = one.zone
        several = np.zeros(len(batch), np.bool_)
        for zone, mask in masks.items():
            several |= mask & (places != NOBODY)
            places[mask] = zones.index(zone)
        if rest:
            places[places == NOBODY] = zones.index(rest)
        places[several] = SEVERAL
        return ImageOwners(zones, places)

    def demand_one_owner(self) -> None:
        """Raises if two ranges of a table have the same condition, or both have no condition."""
        seen: dict[tuple[str, str, str], OwnedRange] = {}
        for one in self.ranges:
            key = (one.schema.lower(), one.table.lower(), " ".join(one.where.split()))
            if (other := seen.setdefault(key, one)) is not one:
                where = Where(table=f"{one.schema}.{one.table}", file=one.file, line=one.line)
                what = f"{one} is owned twice, by zone {other.zone} and by zone {one.zone}"
                todo = (
                    "Keep one of the two in pidts.owners, or give them conditions that are never TRUE for the same row"
                )
                raise ConfigError("owners-overlap", what, where=where, todo=todo)

    def text(self) -> str:
        """Returns the ranges as one text; equal ranges have equal texts."""
        return "; ".join(sorted(f"{one}: {one.zone}" for one in self.ranges))


def check_conditions(owners: Owners, table: Table) -> str:
    """Returns why the owner of some rows of the table is unclear; an empty text if it is clear."""
    ranges = owners.of(table.name)
    if not ranges:
        return "no zone owns it: name it in pidts.owners"
    if not table.identity:
        return "it has no key, so a write by another zone cannot be set aside"
    lacks = owners.columns(table.name) - {name.lower() for name in table.arrow.names}
    if lacks:
        return f"it has no column {', '.join(sorted(lacks))}, which a condition of its owners names"
    none = pa.RecordBatch.from_pylist([], schema=change_schema(table))
    try:
        owners.owned(ChangeBatch(table, none), "after")
    except ConfigError as error:
        return error.what
    return ""
