"""Describes what is lost when the log that a task needs is gone: the tables, the positions, and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from pidts.apply.checkpoint import demand_unaltered
from pidts.apply.claim import demand_all_workers
from pidts.batch.log_place import demand_same_log, place_to_prove
from pidts.batch.workers import Workers, resume_point
from pidts.binlog import FILE_HEAD
from pidts.model import Checkpoint, Halted, PidtsError, Position, PrecheckFailed, SourceTablesKey, parse_gtid_set
from pidts.model.advice import fill_zone, for_channel, for_zone
from pidts.model.errors import listed, sentence, utc_time
from pidts.relay import Origin, RelayReader
from pidts.relay.folder import Folder
from pidts.relay.reader import OWN_RELAY
from pidts.relay.task_needs import read_needs
from pidts.replicate import AppliedPlace, demand_begins_again, demand_checkpoint_in_log, end_of_same_log
from pidts.source import ServerInfo, Session, binary_logs, connect, event_at, gtids_before, query, server_info
from pidts.source.dump import RESTORE_LOG
from pidts.target.mysql import datacenter
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.presence import is_present

_PURGED = frozenset({"position-lost", "relay-purged"})
"""Codes of errors after which the task cannot continue from its checkpoint, since the log after it is gone."""
_ELSEWHERE = frozenset({"source-went-back", "other-source", "relay-outdated"})
"""Codes of errors with one of three causes: the log is lost, a wrong server answers, or the relay's folder is wrong."""
_BROKEN = frozenset({"relay-gap", "relay-disorder", "relay-corrupt"})
"""Codes of errors about a damaged relay. The log is lost only if the source cannot send the damaged part again."""
LACKS_ROWS = "xa-not-received"
"""The code of the error about a COMMIT whose rows are in earlier log. The relay can continue after the COMMIT."""
_UNREADABLE = "source-log-unreadable"
"""The code of the error about a source that cannot send its log from the task's place on."""
_MAY_BE_IN_RELAY = frozenset({"relay-purged", "other-source"})
"""Codes of errors whose cause may be the log in the relay: the source may be right, and the relay may be kept."""


@dataclass(frozen=True, slots=True)
class LogLoss:
    """The reason why the task cannot continue in the log."""

    reason: str
    code: str = "position-lost"
    """The code of the error with which a run would end."""
    keeps_relay: bool = False
    """Whether the relay can continue: its log is sound, and only begins too late for this task, or lacks rows of a
    transaction.
    """


def find_loss(config: TaskConfig, source: Session, stored: Sequence[Checkpoint]) -> LogLoss | None:
    """Returns the loss if the log after the target's checkpoint is known to be gone, otherwise None.

    The log itself is not read. A checkpoint that was changed by hand also counts as a loss, since it does not show what
    the target has.
    """
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        if altered := next((row.altered for row in stored if row.altered), ""):
            return LogLoss(f"the checkpoint was changed by hand: {altered}", keeps_relay=relay.received is not None)
        if (error := _other_log(config, stored, relay)) is not None:
            return LogLoss(error.what, code=error.code, keeps_relay=_may_begin_in(config, stored, relay))
        return _purged_log(config, source, stored, relay)


def _may_begin_in(config: TaskConfig, stored: Sequence[Checkpoint], relay: RelayReader) -> bool:
    """Whether the task can take a new position in the relay, which has another log than the checkpoints.

    The source must have this log. And its Lsns must be new to the task: the target may have records with former Lsns.
    """
    end = relay.received
    if end is None or end.change_no <= max(one.lsn.change_no for one in stored):
        return False
    try:
        return end_of_same_log(config.source.server, relay) is not None
    except (Halted, PrecheckFailed):  # the source has another log, or the account may not read the log
        return False


def _purged_log(
    config: TaskConfig, source: Session, stored: Sequence[Checkpoint], relay: RelayReader
) -> LogLoss | None:
    """Returns the loss if neither the relay nor the source has the log after the target's checkpoint."""
    _, state, _ = Workers.claimed(tuple(stored))
    logs = _Logs.of(config, source)
    first, end, origin = relay.first, relay.received, relay.origin
    gtids = relay.gtid_set(end) if end is not None else None
    if first is not None and end is not None and origin is not None:
        own = end.position(origin.log_base) if logs.wrote(origin) else None
        goes_on = logs.has(own, gtids or "")
        if first > state.needs:
            what = f"the relay begins after {first}, and the target is at {state.needs}"
            return LogLoss(what, code="relay-purged", keeps_relay=goes_on)
        return None if goes_on else LogLoss(f"the source has purged its log after {own or gtids}")
    begin = resume_point(stored)
    place = Position.parse(begin.position) if begin.position else None
    if logs.has(place if place is not None and place.base == logs.base else None, begin.gtid):
        return None
    what = f"there is no relay in {_folder(config).path}, and the source has purged its log after "
    return LogLoss(f"{what}{begin.position or begin.gtid}")


def lost_log(config: TaskConfig, *, is_one_of_several: bool) -> Halted | None:
    """Returns the error with which a run would end because of its checkpoint or log; None if none is known."""
    task, source_id = config.name, config.source.source_id
    with (
        closing(RelayReader(config.relay, source_id)) as relay,
        closing(config.target.server.connect()) as target,
    ):
        stored = target.meta.checkpoints.read(task, source_id)
        if not stored:
            return None
        try:
            with advised_without_copy(config):
                for row in stored:
                    demand_unaltered(row)
                demand_all_workers(target, task, source_id, stored)
        except Halted as error:
            return _explained(config, error, is_one_of_several=is_one_of_several)
        if (other := _other_log(config, stored, relay)) is not None:
            return _explained(config, other, is_one_of_several=is_one_of_several)
        has_relay = relay.first is not None
        # A run on another machine has its relay on that machine.
        runs_elsewhere = not has_relay and is_present(target, task, source_id)
        # The relay server's machine receives the log.
        if runs_elsewhere or config.relay_from is not None:
            return None
        found = _purge_error(config, stored, relay) or _refusal(config, stored, relay)
    if found is None:
        return None
    found = _explained(config, found, is_one_of_several=is_one_of_several)
    if has_relay:
        return found
    todo = f"If the task runs on another machine, run this check there. Otherwise: {found.todo}"
    return Halted(found.code, found.what, where=found.where, todo=todo)


def _explained(config: TaskConfig, error: Halted, *, is_one_of_several: bool) -> Halted:
    return with_loss_explained(config, error, last_moved(config), is_one_of_several=is_one_of_several)


def demand_log(config: TaskConfig, stored: Sequence[Checkpoint], relay: RelayReader) -> None:
    """Raises if the relay has another log than the target.

    If the relay ends before the checkpoints, also raises if the source has another log than the target.
    """
    demand_same_log(relay, stored)
    if (applied := place_to_prove(relay, stored)) is not None:
        demand_checkpoint_in_log(config.source.server, applied)


def _other_log(config: TaskConfig, stored: Sequence[Checkpoint], relay: RelayReader) -> Halted | None:
    """Returns the error of `demand_log`; None if there is none. Raises if the relay is damaged."""
    try:
        demand_log(config, stored, relay)
    except Halted as error:
        if error.code in _BROKEN:
            raise
        return error
    return None


def _purge_error(config: TaskConfig, stored: Sequence[Checkpoint], relay: RelayReader) -> Halted | None:
    """Returns the error for log that is known to be gone."""
    with closing(connect(config.source.server)) as source:
        loss = _purged_log(config, source, stored, relay)
    if loss is None:
        return None
    todo = RESTORE_LOG if loss.code == "position-lost" else ""
    return Halted(loss.code, loss.reason, where=config.source.server.where, todo=todo)


def _refusal(config: TaskConfig, stored: Sequence[Checkpoint], relay: RelayReader) -> Halted | None:
    """Returns the error with which the replicator would refuse the source because of its log; None if it would not."""
    source = config.source.server
    try:
        if relay.first is not None:
            end_of_same_log(source, relay)
        else:
            at = resume_point(stored)
            place = AppliedPlace(at.lsn, at.position, at.gtid, at.log_file)
            demand_begins_again(source, place, use_gtid=config.source.use_gtid)
    except Halted as error:
        return error if error.code in _ELSEWHERE else None  # other checks report the other errors
    return None


@dataclass(frozen=True, slots=True)
class _Logs:
    """The log files that the source still has."""

    config: TaskConfig
    source: Session
    files: tuple[str, ...]
    """The log files, the oldest first."""

    @classmethod
    def of(cls, config: TaskConfig, source: Session) -> _Logs:
        return cls(config, source, tuple(name for name, _ in binary_logs(source)))

    @property
    def base(self) -> str:
        """The name of the log files without the number."""
        return self.files[-1].rpartition(".")[0] if self.files else ""

    @property
    def first(self) -> Position:
        return Position(self.files[0], FILE_HEAD)

    def wrote(self, origin: Origin) -> bool:
        return (origin.server, origin.log_base) == (server_info(self.source).identity, self.base)

    def has(self, place: Position | None, gtids: str) -> bool:
        """Whether the source still has the log after this position or GTID set; True if that cannot be found out."""
        if not self.files or (place is not None and place.file in self.files):
            return True
        info = server_info(self.source)
        if not (self.config.source.use_gtid and gtids and info.gtid_mode):
            return place is None
        before = self._gtids_gone(info)
        if before is None:
            return True
        try:
            gone, ours = (parse_gtid_set(text, info.is_mariadb) for text in (before, gtids))
        except ValueError:
            return True
        return type(gone) is not type(ours) or gone.issubset(ours)  # type: ignore[arg-type]

    def _gtids_gone(self, info: ServerInfo) -> str | None:
        """Returns the GTIDs of transactions that the source's log no longer has; None if the search takes too long."""
        if not info.is_mariadb:
            # MySQL refuses to send the log to a replica that lacks one of these transactions.
            return str(query(self.source, "SELECT @@GLOBAL.gtid_purged")[0][0])
        return gtids_before(self.config.source.server, self.source, info, self.first)


def with_loss_explained(
    config: TaskConfig, error: Halted, moved_at: float = 0.0, *, is_one_of_several: bool = False
) -> Halted:
    """Returns the error with a description of the loss and the way to repair it; unchanged if no log is lost.

    The function queries the servers; if a server does not answer, the description is shorter. `moved_at` is the time at
    which the task last applied a change, in seconds since 1970; 0 if this time is not known.
    """
    is_lost = error.code in _PURGED or (error.code in _BROKEN and "cannot be fetched" in error.todo)
    command = f"pidts run {config.shell_path} --resync"
    if is_one_of_several:
        command += f" {config.source.source_id}:"
    if config.is_between_zones:
        command = f"{fill_zone(config.zones.target)}, which fills a zone again from another one (docs/operate/zones.md)"
    equal, repair = f"and make the target equal: {command}", f"Copy the rows that may have changed, online: {command}"
    if config.target.is_datacenter:
        equal = _begin_anew(config)
        repair = f"A channel copies no rows. {equal[0].upper()}{equal[1:]}"
    if error.code in _ELSEWHERE:
        is_alone = config.relay_from is None and not other_tasks(config)
        advice = "" if error.todo == OWN_RELAY and is_alone else sentence(error.todo)
        todo = f"{advice} To continue with the source as it is now, {equal}".lstrip()
        return Halted(error.code, error.what, where=error.where, todo=todo)
    if error.code == LACKS_ROWS:
        todo = (
            "When all XA transactions from before the relay's beginning are committed or rolled back (XA RECOVER lists "
            f"those that are not): {repair[0].lower()}{repair[1:]}"
        )
        return Halted(error.code, error.what, where=error.where, todo=todo)
    if not is_lost:
        return error
    with suppress(PidtsError):
        found = lost_range(config, moved_at)
        if not found:
            folder = _folder(config).path
            todo = f"Nothing is lost, because the source still has this part of its log: empty {folder} and start again"
            return Halted(error.code, error.what, where=error.where, todo=todo)
        error = Halted(error.code, f"{sentence(error.what)} {found}", where=error.where, todo=error.todo)
    todo = repair + (f"   (or: {error.todo})" if error.todo else "")
    return Halted(error.code, error.what, where=error.where, todo=todo)


@contextmanager
def advised_without_copy(config: TaskConfig) -> Iterator[None]:
    """Replaces the advice to copy rows again in the errors of a channel, and of a task between zones."""
    try:
        yield
    except PidtsError as error:
        if config.target.is_datacenter:
            error.todo = for_channel(
                error.todo, _begin_anew(config), f"{config.target.database}.{datacenter.CHECKPOINT}"
            )
        if config.into_zone is not None:
            error.todo = for_zone(error.todo, config.into_zone)
        raise


def _begin_anew(config: TaskConfig) -> str:
    return (
        f"begin the channel anew: empty {_folder(config).path}, drop the datacenter {config.target.database} or name "
        "another database, and start again at the position of a new baseline of the rows "
        "(docs/operate/log-purged.md#a-channel)"
    )


def lost_range(config: TaskConfig, moved_at: float) -> str:
    """Returns a text about the lost changes (tables, positions, times); empty if the source still has them."""
    task, source_id = config.name, config.source.source_id
    with closing(config.target.server.connect()) as target:
        stored = target.meta.checkpoints.read(task, source_id)
        tables = sorted(
            name for name in target.meta.structures.load(task, SourceTablesKey(source_id)) if config.allow(name)
        )
    if not stored:
        return "The target has received no change of this source"
    begin = resume_point(stored)
    text = f"The target lacks the changes of {listed(tables) or 'the tables'} after {begin.position or begin.lsn}"
    with suppress(PidtsError), closing(RelayReader(config.relay, source_id)) as relay:
        last = relay.find(begin.lsn)
        moved_at = (last.transaction.timestamp if last is not None else 0) or moved_at
    text += f" ({utc_time(moved_at)})" if moved_at else ""
    with suppress(PidtsError):
        with closing(connect(config.source.server)) as session:
            logs = _Logs.of(config, session)
        if begin.position and Position.parse(begin.position).base == logs.base:
            if Position.parse(begin.position).file in logs.files:
                return ""
            text += f" and before {logs.first}"
            raw = event_at(config.source.server, logs.first)
            text += f" ({utc_time(int.from_bytes(raw[:4], 'little'))})" if raw else ""
    return text


def _folder(config: TaskConfig) -> Folder:
    return Folder.of(config.relay, config.source.source_id)


def other_tasks(config: TaskConfig) -> list[str]:
    """Returns the other tasks that have recorded a need in this task's relay."""
    return [need.task for need in read_needs(_folder(config)) if need.task != config.name]


def last_moved(config: TaskConfig) -> float:
    """Returns when the task has last recorded a need in the relay, in seconds since 1970; 0 if never."""
    return next((need.written_at for need in read_needs(_folder(config)) if need.task == config.name), 0.0)


def loses_log(error: Halted) -> bool:
    """Whether the task cannot continue from the target's checkpoint after this error."""
    return error.code in _PURGED | _ELSEWHERE | _BROKEN | {LACKS_ROWS, _UNREADABLE}


def loss_from(error: Halted) -> LogLoss:
    """Returns the loss that an error means.

    The loss has the code `position-lost`, unless the relay may be kept after the error.
    """
    lacks_rows = error.code == LACKS_ROWS
    code = error.code if lacks_rows or error.code in _MAY_BE_IN_RELAY else "position-lost"
    return LogLoss(error.what, code, keeps_relay=lacks_rows)
