"""What the relay commands are pointed at: a task file, or a directory that holds relays; and who needs what of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pidts.model import Checkpoint, ConfigError, Halted, Lsn, PidtsError, Where
from pidts.relay.folder import Folder
from pidts.relay.needs import read_needs
from pidts.relay.survey import source_ids
from pidts.task.compose import target_of
from pidts.task.config import TaskConfig, load_parts


@dataclass(frozen=True, slots=True)
class Place:
    """One source's relay, and the task that it was named by."""

    relay: Path
    source_id: str
    task: TaskConfig | None = None

    @property
    def folder(self) -> Folder:
        """Its files."""
        return Folder.of(self.relay, self.source_id)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the target of the named task says."""

    checkpoints: Mapping[str, Lsn] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    error: PidtsError | None = None
    """Why it could not be asked."""


def find_places(path: Path) -> list[Place]:
    """One for each source of a task file, or for its folder; for a directory of relays, all of them."""
    if not path.is_dir():
        return [Place(part.relay, part.source.source_id, part) for part in load_parts(path)]
    path = path.absolute()
    if any(path.glob("*.index")):
        return [Place(path.parent, path.name)]
    found = [Place(path, source_id) for source_id in source_ids(path)]
    if not found:
        todo = "Name a task file, or a directory that a task's `pidts.relay` names"
        raise ConfigError("no-relay", "there is no relay in this directory", where=Where(file=str(path)), todo=todo)
    return found


def ask_target(place: Place) -> Asked:
    """How far the named task is; nothing where a directory was named."""
    config = place.task
    if config is None:
        return Asked()
    try:
        with closing(target_of(config).connect()) as session:
            rows = session.checkpoints(config.name, config.source.source_id)
    except PidtsError as error:
        return Asked(error=error)
    if not rows:
        return Asked()
    slowest: Checkpoint = min(rows, key=lambda row: row.lsn)
    return Asked({config.name: slowest.lsn}, {config.name: slowest.position})


def require_known(place: Place, asked: Asked, *, force: bool) -> None:
    """Before anything is removed: it has to be known what is still needed, unless a person says to go on without."""
    if force:
        return
    where = Where(source=place.source_id, file=str(place.folder.path))
    if asked.error is not None and place.task is not None:
        raise Halted(
            "checkpoint-unknown",
            f"the target of task {place.task.name} cannot be asked how far it is: {asked.error}",
            where=where,
            todo="Try again when it answers. --force goes by the mark that the task has left in the relay instead",
        )
    if not asked.checkpoints and not read_needs(place.folder):
        raise Halted(
            "relay-needs-unknown",
            "no task has left its mark in this relay, so nobody knows what is still needed of it",
            where=where,
            todo="Name the task file instead. --force with --before or --keep removes what you say",
        )
