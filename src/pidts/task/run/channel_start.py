"""Begins a channel: at its checkpoint in the datacenter, or for the first time.

The steps of the first start:

1. Each table is created separately.
2. One transaction writes the task's name, the structures and the row of `transfer_checkpoint`.
3. The claim creates the task's checkpoint.

Crash points: as long as the task's checkpoint is missing, a restart repeats all steps. The restart finds that its own
task fills the datacenter, and removes from the record the tables that were dropped meanwhile. When the checkpoint
exists, another first start ends before it writes anything. So structures of one run are never combined with the
checkpoint of another run.

Later starts remove the structures of tables that the rules now leave out, in one transaction after the claim. A crash
before this transaction does no harm: the checkpoint has not moved yet, so no schema change of these tables was skipped.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from pidts.apply import TargetSession
from pidts.apply.checkpoint import demand_not_fenced, demand_unaltered, fenced
from pidts.batch.batch_done import BatchDone
from pidts.batch.context import JobContext
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.batch.workers import resume_point
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.record import join
from pidts.gate.committer import Channel
from pidts.gate.stream import ChannelStream
from pidts.model import Checkpoint, Lsn, PrecheckFailed, SourceTablesKey, TableName, Transient, Where
from pidts.plan import PlanState
from pidts.relay.folder import Folder
from pidts.relay.servers_read import servers_read
from pidts.source import Session, schema_charsets, source_dialect
from pidts.target.checkpoints import taken
from pidts.target.mysql import MySqlSession, MySqlTarget
from pidts.target.mysql.datacenter import CHECKPOINT, DATA, Datacenter
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.read_structures import StructureReader, StructureReading
from pidts.task.run.replicator_process import ReplicatorProcess
from pidts.task.run.start import StartState, read_at_start, resumed_state, start_checkpoint, terms_of_relay
from pidts.task.tables.channel import note_first_id, other_task, own

_LOCK = ("*", "datacenter")


def begin_channel(
    config: TaskConfig,
    source: Session | Transient,
    target: TargetSession,
    replicator: ReplicatorProcess,
    stop: threading.Event,
    on_claim: Callable[[int], None] = lambda _: None,
    epoch: int = 0,
    *,
    has_begun: bool = False,
) -> StartState:
    """Starts the replicator, claims the channel, and returns the state to begin with.

    `epoch` is the epoch of this run's last claim; 0: the run has made none. `has_begun`: an earlier attempt of this run
    has begun the channel.
    """
    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    source_id = config.source.source_id
    datacenter = Datacenter(target, config.target.database)
    if misfit := datacenter.misfit():
        raise _refused(config, misfit, "Give its tables Inception Gate's columns, or name another database")
    datacenter.prepare()
    target.meta.prepare()
    stored = target.meta.checkpoints.read(config.name, source_id)
    demand_not_fenced(stored, config.name, source_id, epoch, has_begun=has_begun)
    if stored:
        for row in stored:
            demand_unaltered(row)
        if isinstance(source, Transient):
            charsets, dialect = terms_of_relay(config, resumed_state(stored).needs, source)
        else:
            charsets, dialect = schema_charsets(source), source_dialect(source)
        replicator.resume_at = resume_point(stored)
        replicator.start()
        claimed = _claim(config, target, stored[0], max(row.epoch for row in stored), on_claim)
    elif isinstance(source, Transient):
        raise source
    else:
        reader = StructureReader(config, source, replicator, stop)
        claimed = _first_start(config, source, target, datacenter, reader, on_claim)
        charsets, dialect = schema_charsets(source), source_dialect(source)
    known = target.meta.structures.load(config.name, SourceTablesKey(source_id))
    left = sorted(name for name in known if not config.allow(name))
    if left:
        _forget(target, claimed, left)
    structures = {name: table for name, table in known.items() if name not in left}
    notes = tuple(f"{name} leaves the channel; only a new channel can carry it again" for name in left)
    return StartState((claimed,), structures, charsets, dialect, None, config.rules, notes=notes)


def open_channel(
    config: TaskConfig,
    begun: StartState,
    context: JobContext,
    classifier: TransactionClassifier,
    goal: Lsn | None,
    on_commit: Callable[[BatchDone], None],
    shards: ShardGroups,
    leaves: Callable[[], bool],
) -> ChannelStream:
    """Returns the stream of a channel that has begun."""
    target = config.target.server
    assert isinstance(target, MySqlTarget)  # noqa: S101 - that is its type
    (checkpoint,) = begun.checkpoints
    source_id = config.source.source_id
    join(shards, context)
    return ChannelStream(
        context=context,
        channel=Channel(target, config.target.database, config.name, source_id, checkpoint.epoch, config.workers),
        checkpoint=checkpoint,
        classifier=classifier,
        limits=config.limits,
        goal=goal,
        instance_of=_Instances(config),
        retention=config.retention,
        on_commit=on_commit,
        shards=shards,
        leaves=leaves,
    )


class _Instances:
    def __init__(self, config: TaskConfig) -> None:
        self._folder = Folder.of(config.relay, config.source.source_id).path
        self._now = address_of(config.source.server)
        self._found: dict[int, str] = {}

    def __call__(self, change_no: int) -> str:
        """Returns `ip:port` of the server whose log was received after this number of failovers."""
        if change_no not in self._found:
            self._found[change_no] = _with_ip(servers_read(self._folder).get(change_no, self._now))
        return self._found[change_no]


def _with_ip(address: str) -> str:
    """Returns the address with the host's IP address, or with its name if the IP address is not known now."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = str(socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][4][0])
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _first_start(
    config: TaskConfig,
    source: Session,
    target: MySqlSession,
    datacenter: Datacenter,
    reader: StructureReader,
    on_claim: Callable[[int], None],
) -> Checkpoint:
    read = read_at_start(config, source, reader)
    # With the lock, two first starts run one after the other. The second start is refused: it finds the name of another
    # task, or the checkpoint of its own channel. The structures are saved before that checkpoint.
    with target.meta.ddl_lock(*_LOCK):
        target.begin()
        try:
            _put_on_record(config, target, datacenter, read)
            target.commit()
        except BaseException:
            target.rollback()
            raise
        return _claim(config, target, start_checkpoint(config, read, PlanState(read.lsn)), None, on_claim)


def _claim(
    config: TaskConfig, target: MySqlSession, first: Checkpoint, read: int | None, on_claim: Callable[[int], None]
) -> Checkpoint:
    place = config.name, config.source.source_id
    (claimed,) = target.meta.checkpoints.claim(*place, 1, first, read=read, on_claim=on_claim)
    return claimed


def _put_on_record(config: TaskConfig, target: MySqlSession, datacenter: Datacenter, read: StructureReading) -> None:
    source = config.source.source_id
    if target.meta.checkpoints.read(config.name, source):
        raise taken("another run has made the first start of this channel meanwhile")
    if other := other_task(config, target):
        raise _refused(config, f"{other} fills it", "Name another database: a datacenter has one channel")
    datacenter.begin()
    numbers = datacenter.numbers()
    if datacenter.rows_beyond(numbers.id):
        what = f"{DATA} has rows after {CHECKPOINT}, which is at id {numbers.id}"
        raise _refused(
            config, what, "Stop the program that writes there, and remove these rows, or name another datacenter"
        )
    own(config, target)
    note_first_id(target, numbers.id + 1)
    earlier = target.meta.structures.load(config.name, SourceTablesKey(source))
    target.meta.structures.save(
        config.name, SourceTablesKey(source), read.lsn, {**dict.fromkeys(earlier), **read.structures}
    )
    target.meta.shadows.replace(config.name, source, read.shadows)


def _forget(target: MySqlSession, claimed: Checkpoint, left: Sequence[TableName]) -> None:
    """Removes from the record the tables that the rules leave out. Their later schema changes are not recorded."""
    target.begin()
    try:
        _lock(target, claimed)
        target.meta.structures.save(claimed.task, SourceTablesKey(claimed.source), claimed.lsn, dict.fromkeys(left))
        target.commit()
    except BaseException:
        target.rollback()
        raise


def _lock(target: MySqlSession, claimed: Checkpoint) -> None:
    """Locks the checkpoint. Raises if another run has claimed it meanwhile."""
    stored = target.meta.checkpoints.lock(claimed.task, claimed.source, claimed.worker)
    if stored.epoch != claimed.epoch:
        raise fenced(stored, claimed.epoch)


def _refused(config: TaskConfig, what: str, todo: str) -> PrecheckFailed:
    return PrecheckFailed(
        "datacenter-refused",
        f"the datacenter {config.target.database} cannot be used: {what}",
        where=Where(source=config.source.source_id, file=str(config.path)),
        todo=todo,
    )
