"""The catalog of a server, to which the tables of a warehouse are published.

Each kind of server implements `ServerCatalog`. `step` decides for all of them what has to be done with a table in the
catalog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from pidts.model import TableName
from pidts.target.iceberg.files import name_of

_OURS = re.compile(r"\d{8,}-[0-9a-f]{32}\.metadata\.json")


@dataclass(frozen=True, slots=True)
class CatalogUpdate:
    """A table's next state in the catalog of a server."""

    table: TableName
    goal: str | None
    """The metadata file that the server should name; None if the table has to be removed."""
    former: str = ""
    """The metadata file that the server named when it last answered; empty if it is not known to have the table."""


class CatalogAction(Enum):
    """An action by which a server brings a table to its next state."""

    NOTHING = auto()
    CREATE = auto()
    REPLACE = auto()
    REMOVE = auto()


class ServerCatalog(Protocol):
    """A catalog on a server."""

    @property
    def place(self) -> str:
        """The address and the catalog's name, without secrets. Tasks with one `place` publish to one catalog."""
        ...

    def move(self, moves: Sequence[CatalogUpdate]) -> Mapping[TableName, str]:
        """Brings the tables to their next states; returns the tables that were not changed, each with the reason.

        One action of the server changes a table. The action takes effect only if the table is still in the state for
        which `step` has chosen it. If the method raises, some tables may have been changed, and the server may still
        change others.
        """
        ...

    def check(self) -> None:
        """Raises if the catalog cannot be reached or written to."""
        ...


def step(move: CatalogUpdate, there: str | None) -> CatalogAction | str:
    """Returns the action for a table for which the server names the file `there`, or the reason to do nothing."""
    if there == move.goal or (move.goal is None and not move.former):  # the server never had the table to remove
        return CatalogAction.NOTHING
    if there is None:
        return CatalogAction.CREATE
    if (move.former and there == move.former) or (not move.former and _is_earlier(there, move.goal)):
        return CatalogAction.REMOVE if move.goal is None else CatalogAction.REPLACE
    if move.former:
        return f"another program has changed the table in the catalog: its metadata file is {there}"
    which = f"with the metadata file {there}" if there else "which is no Iceberg table"
    return f"the catalog has a table of this name that this warehouse does not publish, {which}"


def first_line(error: Exception) -> str:
    """Returns the first line of a server's error text; the other lines are its trace."""
    text = str(getattr(error, "message", "") or error)
    return text.partition("\n")[0][:300]


def _is_earlier(there: str, goal: str | None) -> bool:
    """Whether PiDTS has written the metadata file `there`, and for the same table as `goal`.

    If so, a task has published this file earlier, and the task's record is gone.
    """
    same = goal is not None and there.rpartition("/")[0] == goal.rpartition("/")[0]
    return same and _OURS.fullmatch(name_of(there)) is not None
