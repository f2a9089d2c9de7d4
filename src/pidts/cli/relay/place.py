"""Finds the relays of a task file or a directory, and reads the task's checkpoints from its target."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pidts.model import Checkpoint, ConfigError, Halted, Lsn, PidtsError, Where
from pidts.relay.folder import Folder
from pidts.relay.survey import source_ids
from pidts.relay.task_needs import read_needs
from pidts.task.config.task_file import TaskConfig, load_parts


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """One source's relay, and the task in whose file it was found."""

    relay: Path
    source_id: str
    task: TaskConfig | None = None

    @property
    def folder(self) -> Folder:
        """The relay's files."""
        return Folder.of(self.relay, self.source_id)


@dataclass(frozen=True, slots=True)
class TargetCheckpoints:
    """The checkpoints of the named task on its target."""

    checkpoints: Mapping[str, Lsn] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    error: PidtsError | None = None
    """The reason why the target could not be read."""


def find_relays(path: Path) -> list[RelayPlace]:
    """Returns the relays of a task file, the relay in a folder, or all relays in a directory."""
    if not path.is_dir():
        return [RelayPlace(part.relay, part.source.source_id, part) for part in load_parts(path)]
    path = path.absolute()
    if any(path.glob("*.index")):
        return [RelayPlace(path.parent, path.name)]
    found = [RelayPlace(path, source_id) for source_id in source_ids(path)]
    if not found:
        todo = "Give a task file, or the directory in a task file's `pidts.relay`"
        raise ConfigError("no-relay", "there is no relay in this directory", where=Where(file=str(path)), todo=todo)
    return found


def read_checkpoints(place: RelayPlace) -> TargetCheckpoints:
    """Reads the checkpoints of the relay's task; returns none if the user has named a directory instead of a task."""
    config = place.task
    if config is None:
        return TargetCheckpoints()
    try:
        with closing(config.target.server.connect()) as session:
            rows = session.meta.checkpoints.read(config.name, config.source.source_id)
    except PidtsError as error:
        return TargetCheckpoints(error=error)
    if not rows:
        return TargetCheckpoints()
    slowest: Checkpoint = min(rows, key=lambda row: row.lsn)
    return TargetCheckpoints({config.name: slowest.lsn}, {config.name: slowest.position})


def demand_known_needs(place: RelayPlace, target: TargetCheckpoints, *, force: bool) -> None:
    """Raises if it is not known which log is still needed. With `force`, does nothing."""
    if force:
        return
    where = Where(source=place.source_id, file=str(place.folder.path))
    if target.error is not None and place.task is not None:
        raise Halted(
            "checkpoint-unknown",
            f"the target of task {place.task.name} does not answer, so its checkpoint is not known: {target.error}",
            where=where,
            todo="Try again when the target answers. With --force, the position that the task has recorded is used",
        )
    if not target.checkpoints and not read_needs(place.folder):
        raise Halted(
            "relay-needs-unknown",
            "no task has recorded which log it needs from this relay, so it is not known what may be removed",
            where=where,
            todo="Name the task file instead. With --force, --before or --keep decides what is removed",
        )
