"""What a task has lost when the log that it needs is nowhere: which tables, from where to where, since when."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pidts.batch.workers import Workers, resume_point
from pidts.model import Checkpoint, Halted, PidtsError, Position, TableName, parse_gtid_set
from pidts.relay import Origin, RelayReader
from pidts.relay.folder import Folder
from pidts.relay.needs import read_needs
from pidts.source import Session, binary_logs, connect, event_at, gtids_before, server_info
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig

_PURGED = frozenset({"position-lost", "relay-purged"})
"""Codes of errors after which nothing can go on from the target's checkpoint: what comes behind it is gone."""
_ELSEWHERE = frozenset({"source-went-back", "other-source", "relay-outdated"})
"""The same, but it may be the wrong server that answers, or the wrong folder."""
_BROKEN = frozenset({"relay-gap", "relay-disorder", "relay-corrupt"})
"""The same, once the relay could not be filled again."""
_NAMED = 5
_FILE_HEAD = 4


@dataclass(frozen=True, slots=True)
class Loss:
    """Why the log cannot be followed any more."""

    reason: str
    keeps_relay: bool = False
    """The relay itself goes on; it only begins too late for this task."""


def lost_log(config: TaskConfig, source: Session, stored: Sequence[Checkpoint]) -> Loss | None:
    """Whether what comes behind the target's checkpoint is gone, as far as both sides can tell without trying."""
    logs = _Logs.of(config, source)
    _, state, _ = Workers.claimed(tuple(stored))
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        first, end, origin = relay.first, relay.received, relay.origin
        gtids = relay.gtid_set(end) if end is not None else None
    if first is not None and end is not None and origin is not None:
        own = end.position(origin.log_base) if logs.wrote(origin) else None
        goes_on = logs.has(own, gtids or "")
        if first > state.needs:
            return Loss(f"the relay begins behind {first}, and the target is at {state.needs}", keeps_relay=goes_on)
        return None if goes_on else Loss(f"the source has purged its log behind {own or gtids}")
    begin = resume_point(stored)
    place = Position.parse(begin.position) if begin.position else None
    if logs.has(place if place is not None and place.base == logs.base else None, begin.gtid):
        return None
    return Loss(f"the relay is gone, and the source has purged its log behind {begin.position or begin.gtid}")


@dataclass(frozen=True, slots=True)
class _Logs:
    """What the source still has."""

    config: TaskConfig
    source: Session
    files: tuple[str, ...]
    """Oldest first."""

    @classmethod
    def of(cls, config: TaskConfig, source: Session) -> _Logs:
        return cls(config, source, tuple(name for name, _ in binary_logs(source)))

    @property
    def base(self) -> str:
        """Its files' name without the number."""
        return self.files[-1].rpartition(".")[0] if self.files else ""

    @property
    def first(self) -> Position:
        """Where it begins."""
        return Position(self.files[0], _FILE_HEAD)

    def wrote(self, origin: Origin) -> bool:
        return (origin.server, origin.log_base) == (server_info(self.source).identity, self.base)

    def has(self, place: Position | None, gtids: str) -> bool:
        """Whether it goes on from a place of its own, or by GTID; True where nobody can tell without trying."""
        if not self.files or (place is not None and place.file in self.files):
            return True
        info = server_info(self.source)
        if not (self.config.source.use_gtid and gtids and info.gtid_mode):
            return place is None
        before = gtids_before(source_config(self.config), self.source, info, self.first)
        if before is None:
            return True
        try:
            gone, ours = (parse_gtid_set(text, info.is_mariadb) for text in (before, gtids))
        except ValueError:
            return True
        return type(gone) is not type(ours) or gone.issubset(ours)  # type: ignore[arg-type]


def explained(config: TaskConfig, error: Halted, moved_at: float = 0.0, *, is_one_of_several: bool = False) -> Halted:
    """The same error, with what was lost and the command that repairs it; as it was where it is no loss.

    `moved_at` is when the task was last seen to get on, in seconds since 1970; 0 where nobody knows.
    All of it is asked for now. What cannot be told any more is left out.
    """
    is_lost = error.code in _PURGED or (error.code in _BROKEN and "cannot be fetched" in error.todo)
    command = f"pidts run {config.path} --resync"
    if is_one_of_several:
        command += f" {config.source.source_id}:"
    if error.code in _ELSEWHERE:
        todo = f"{error.todo}. To go on from what is there now, and make the target equal to it: {command}"
        return Halted(error.code, error.what, where=error.where, todo=todo)
    if not is_lost:
        return error
    with suppress(PidtsError):
        found = lost_range(config, moved_at)
        if not found:
            folder = _folder(config).path
            todo = f"Nothing is lost, the source still has its log from there: empty {folder} and start again"
            return Halted(error.code, error.what, where=error.where, todo=todo)
        error = Halted(error.code, f"{error.what}. {found}", where=error.where, todo=error.todo)
    todo = f"Copy online what may have changed: {command}" + (f"   (or: {error.todo})" if error.todo else "")
    return Halted(error.code, error.what, where=error.where, todo=todo)


def lost_range(config: TaskConfig, moved_at: float = 0.0) -> str:
    """Which tables' changes between which places and times are not going to come; empty where the source has them."""
    task, source_id = config.name, config.source.source_id
    with closing(target_of(config).connect()) as target:
        stored = target.checkpoints(task, source_id)
        tables = sorted(name for name in target.load_structures(task, source_id) if config.allow(name))
    if not stored:
        return "The target never had any of it"
    begin = resume_point(stored)
    text = f"Lost for the target: changes of {_listed(tables)} behind {begin.position or begin.lsn}"
    with suppress(PidtsError), closing(RelayReader(config.relay, source_id)) as relay:
        last = relay.find(begin.lsn)
        moved_at = (last.transaction.timestamp if last is not None else 0) or moved_at
    text += f" ({_time(moved_at)})" if moved_at else ""
    with suppress(PidtsError):
        config_of_source = source_config(config)
        with closing(connect(config_of_source)) as session:
            logs = _Logs.of(config, session)
        if begin.position and Position.parse(begin.position).base == logs.base:
            if Position.parse(begin.position).file in logs.files:
                return ""
            text += f" and before {logs.first}"
            raw = event_at(config_of_source, logs.first)
            text += f" ({_time(int.from_bytes(raw[:4], 'little'))})" if raw else ""
    return text


def _folder(config: TaskConfig) -> Folder:
    return Folder.of(config.relay, config.source.source_id)


def _listed(tables: Sequence[TableName]) -> str:
    names = ", ".join(map(str, tables[:_NAMED]))
    more = len(tables) - _NAMED
    return f"{names} and {more} more tables" if more > 0 else names or "its tables"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def last_moved(config: TaskConfig) -> float:
    """When an earlier run of the task has left its mark in the relay, in seconds since 1970; 0 where none has."""
    return next((need.written_at for need in read_needs(_folder(config)) if need.task == config.name), 0.0)


def loses_log(error: Halted) -> bool:
    """Whether nothing can go on from the target's checkpoint after an attempt that failed so."""
    return error.code in _PURGED | _ELSEWHERE | _BROKEN


def as_loss(error: Halted) -> Loss | None:
    """What it says about the log; None where the next start sees that for itself, and whether others need the relay."""
    return None if error.code == "relay-purged" else Loss(error.what)
