"""The results of an attempt at a schema change without an error: the change is made, waits, or is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from pidts.apply import AttemptSuperseded
from pidts.batch.context import JobContext
from pidts.model import Arrival, Halt, Table, TableName
from pidts.shards.decide import MissedChanges, Wait

Name = TypeVar("Name")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ChangeDone:
    """The target has the change. The fields have the altered objects; None for a dropped object."""

    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    charsets: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)
    watched: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    keyed: frozenset[TableName] = frozenset()
    """Target tables whose key separates the rows of several source tables."""
    missed: MissedChanges = field(default_factory=dict)
    """The missed changes of renamed shards."""

    def applied_to(self, context: JobContext) -> JobContext:
        """Returns the context for the batches after the change."""
        return replace(
            context,
            structures=_merged(context.structures, self.structures),
            charsets=_merged(context.charsets, self.charsets),
            watched={**context.watched, **self.watched},
            rules=context.rules.with_keyed(self.keyed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWaits:
    """Nothing was changed: other shards must arrive first, or sources must report their tables."""

    wait: Wait
    arrival: Arrival | None = None
    agreed: Table | None = None
    """The structure that the group has agreed on; None if it is not known."""
    targets: frozenset[TableName] | None = None
    """If there is no `arrival`: the target tables whose shards have to be known first; None: all target tables."""


Result: TypeAlias = ChangeDone | ChangeWaits | AttemptSuperseded


def _merged(known: Mapping[Name, Value], changed: Mapping[Name, Value | None]) -> dict[Name, Value]:
    merged: dict[Name, Value | None] = {**known, **changed}
    return {name: value for name, value in merged.items() if value is not None}


class CopyAgain(Exception):
    """Raised if a change gives existing rows values that only the source has. The tables are then copied again."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(str(halt))
        self.halt = halt
