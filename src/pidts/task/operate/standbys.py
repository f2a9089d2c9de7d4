"""Chooses the server that replaces a lost source: it must have executed all transactions received from the source.

The replicator continues at this server by GTID, so no change is lost or arrives twice. Without GTIDs it continues at a
position that the running task has sampled (`pidts.replicate.standby_start`). Two kinds of servers are refused:

- A server that lacks a received transaction. The server's log continues from an older state, and would overwrite newer
  rows of the target.
- A server with a transaction that the source lacked. The server is *barred* (`pidts.task.config.current_server`).

The GTID position of MariaDB has only the last transaction of each domain. So on MariaDB a transaction counts as
executed if the server's `gtid_binlog_state` has this transaction, or a later one of the same server and domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pidts.model import ConfigError, GtidSet, Halted, PidtsError, Where, parse_gtid_set
from pidts.model.errors import sentence
from pidts.model.gtid import MariaDbGtid, MariaDbGtidSet, MySqlGtidSet
from pidts.relay import RelayReader
from pidts.replicate import Looked, demand_standby, first_unreceived
from pidts.source import Session, SourceConfig, connect, server_info
from pidts.source.connection import query
from pidts.task.config.current_server import address_of, bar, barred, choose_server, unbar
from pidts.task.config.task_file import TaskConfig

_SURPLUS = "it has transactions"
_CONNECT_SECONDS, _ANSWER_SECONDS = 3.0, 10.0

WrittenRows = Mapping[tuple[int, int], int]
"""The last sequence number of each server in each domain: MariaDB's `gtid_binlog_state`."""


@dataclass(frozen=True, slots=True)
class ServerTransactions:
    """The transactions that a server has executed."""

    executed: GtidSet
    written: WrittenRows | None
    """The `gtid_binlog_state` of a MariaDB server; None for a MySQL server, whose GTID set is complete."""
    gtid_mode: bool = True

    def has(self, received: GtidSet) -> bool:
        """Whether this server has executed all transactions of a set."""
        if isinstance(received, MySqlGtidSet):
            return isinstance(self.executed, MySqlGtidSet) and received.issubset(self.executed)
        if self.written is None:
            return False
        return all(self.written.get((at.domain, at.server), -1) >= at.sequence for at in received.positions)

    def has_all_of(self, other: ServerTransactions) -> bool:
        """Whether this server has executed everything that another server has executed."""
        if other.written is None or self.written is None:
            return self.has(other.executed)
        return all(self.written.get(key, -1) >= sequence for key, sequence in other.written.items())

    def __str__(self) -> str:
        if self.written is None:
            return str(self.executed)
        return ",".join(f"{domain}-{server}-{last}" for (domain, server), last in sorted(self.written.items()))


def state_of(server: SourceConfig) -> ServerTransactions:
    """Returns the transactions that a server has executed; raises if it does not answer within a few seconds."""
    with closing(connect(replace(server, connect_timeout=_CONNECT_SECONDS), answer_within=_ANSWER_SECONDS)) as session:
        info = server_info(session)
        if not info.is_mariadb:
            executed = str(query(session, "SELECT @@GLOBAL.gtid_executed")[0][0] or "") if info.gtid_mode else ""
            return ServerTransactions(parse_gtid_set(executed, mariadb=False), None, info.gtid_mode)
        ((position, state),) = query(session, "SELECT @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_binlog_state")
        return ServerTransactions(parse_gtid_set(str(position or ""), mariadb=True), written(str(state or "")))


def writes_what_it_replicates(session: Session) -> bool:
    """Whether a replica's own log has the transactions that it gets from its source."""
    names = "'log_slave_updates', 'log_replica_updates'"
    rows = query(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return any(str(value).upper() in {"ON", "1"} for _, value in rows)


def written(state: str) -> WrittenRows:
    """Reads `gtid_binlog_state`."""
    gtids = [MariaDbGtid(*map(int, text.strip().split("-"))) for text in state.split(",") if text.strip()]
    return {(gtid.domain, gtid.server): gtid.sequence for gtid in gtids}


def received_gtids(config: TaskConfig) -> GtidSet | None:
    """Returns the GTIDs that the relay has received, or the target's GTIDs if the relay is empty; None if not known."""
    source_id = config.source.source_id
    with closing(RelayReader(config.relay, source_id)) as relay:
        at = relay.received
        text = relay.gtid_set(at) if at is not None else None
    if text is None:
        with closing(config.target.server.connect()) as target:
            rows = target.meta.checkpoints.read(config.name, source_id)
        text = next((row.gtid for row in rows if row.gtid), None)
    return parse_gtid_set(text) if text else None


def surplus(config: TaskConfig, standby: SourceConfig, looked: Looked) -> str:
    """Compares a standby with the source. If the standby has transactions that the source lacks, it is barred.

    Returns a warning if the standby is barred, otherwise an empty text. Without GTIDs, the comparison reads the
    standby's log, and stores in `looked` where the next comparison begins.
    """
    there = state_of(standby)
    # The source is read after the standby, so transactions that the standby gets meanwhile do not count as surplus.
    here = state_of(config.source.server)
    if not (there.gtid_mode and here.gtid_mode):
        return _surplus_by_log(config, standby, looked)
    place, now = (config.relay, config.source.source_id, address_of(standby)), address_of(config.source.server)
    if here.has_all_of(there):
        unbar(*place)
        return ""
    if not barred(*place).startswith(_SURPLUS):
        with suppress(PidtsError):  # if the disk is full, the next comparison tries again, but the warning is shown now
            bar(*place, f"{_SURPLUS} that the source {now} lacked")
    return (
        f"{address_of(standby)} has transactions that the source {now} lacks: it has {there}, the source has {here}. "
        "The task does not carry them to the target, so do not use this server as the source again"
    )


def _surplus_by_log(config: TaskConfig, standby: SourceConfig, looked: Looked) -> str:
    """Does the same as `surplus` without GTIDs: looks for transactions of a former source that were never received.

    Each comparison looks again, since clients may begin to write to the former source at any time.
    """
    place, now = (config.relay, config.source.source_id, address_of(standby)), address_of(config.source.server)
    with closing(RelayReader(config.relay, config.source.source_id)) as relay:
        found = first_unreceived(standby, relay, looked)
    if found is None:
        unbar(*place)
        return ""
    begin = found.place
    what = f"{_SURPLUS} of its own after {begin} that were not received before {now} became the source"
    if not barred(*place).startswith(_SURPLUS):
        with suppress(PidtsError):
            bar(*place, what)
    if not found.is_certain:
        return (
            f"{address_of(standby)} has transactions of its own that begin at {begin} of its log. The source {now} may "
            "lack them: the relay does not show whether it has them. Do not use this server as the source again"
        )
    return (
        f"{address_of(standby)} has transactions that the source {now} lacks: they begin at {begin} of its log. "
        "The task does not carry them to the target, so do not use this server as the source again"
    )


def misfit(state: ServerTransactions, received: GtidSet | None, bar: str = "") -> str:
    """Returns the reason why a server cannot continue after the received log; empty if it can.

    `bar` is the reason why the server must not become the source again; empty if there is none.
    """
    if received is None:
        return "the GTIDs of the received transactions are not known"
    if not state.gtid_mode:
        return "it writes no GTIDs"
    if isinstance(received, MariaDbGtidSet) is (state.written is None):
        return "it and the source are not of the same product (MySQL or MariaDB)"
    if not state.has(received):
        return f"it lacks transactions that were received: these are {received}, and it has {state}"
    return _misfit_of_barred(bar)


def _misfit_of_barred(bar: str) -> str:
    if not bar:
        return ""
    return (
        f"its own transactions may write old changes over newer rows: {bar}. Build this server anew. Or, if "
        "clients now write only to it, and no client wrote to the former source after the first client wrote to this "
        "server, run: pidts failover TASK --to HOST:PORT --force"
    )


def find_standby(
    config: TaskConfig,
    servers: Sequence[SourceConfig],
    *,
    force: bool = False,
    received_of: Callable[[TaskConfig], GtidSet | None],
) -> tuple[SourceConfig | None, list[str]]:
    """Returns the first server that can take over (None if no server can), and why each server before it cannot.

    With `force`, a barred server may also take over.
    """
    received = received_of(config) if config.source.use_gtid else None
    refusals: list[str] = []
    for server in servers:
        try:
            bar = "" if force else barred(config.relay, config.source.source_id, address_of(server))
            if config.source.use_gtid:
                reason = misfit(state_of(server), received, bar)
            else:
                demand_standby(server, config.relay)
                reason = _misfit_of_barred(bar)
        except PidtsError as error:
            reason = f"{sentence(error.what)} {error.todo}" if error.todo else error.what
        if not reason:
            return server, refusals
        refusals.append(f"{address_of(server)}: {reason}")
    return None, refusals


def fail_over(
    config: TaskConfig,
    to: str,
    *,
    force: bool = False,
    received_of: Callable[[TaskConfig], GtidSet | None] = received_gtids,
) -> str:
    """Chooses another server of a source: `to`, or the first one that can take over. Returns its address.

    A barred server is compared again with the source, if the source answers. With `force`, `to` may take over even if
    it is barred. A running task notices the choice within seconds. A later run begins with this server.
    """
    servers = config.source.standbys
    if force and not to:
        raise ConfigError("usage", "--force needs the name of one server", todo="Name it: --to HOST:PORT")
    if not servers:
        raise _impossible(config, "the source has no standbys", "Name them in the task file: standbys, beside from")
    if to:
        servers = tuple(one for one in servers if address_of(one) == to)
        if not servers:
            now = address_of(config.source.server)
            what = "is already the server that is read" if to == now else "is not a server of the source"
            known = ", ".join(map(address_of, config.source.standbys))
            raise _impossible(config, f"{to} {what}", f"The task file has these standbys: {known}")
    for server in servers:
        if barred(config.relay, config.source.source_id, address_of(server)):
            with suppress(PidtsError):
                surplus(config, server, {})
    found, refusals = find_standby(config, servers, force=force, received_of=received_of)
    if found is None:
        raise Halted(
            "no-standby",
            "no server can take over: " + "; ".join(refusals),
            where=Where(source=config.source.source_id),
            todo="If a server lacks received transactions: wait until it has them, or let the task continue at the "
            "server that has them",
        )
    choose_server(config.source, config.relay, address_of(found))
    return address_of(found)


def _impossible(config: TaskConfig, what: str, todo: str) -> ConfigError:
    return ConfigError("bad-failover", what, where=Where(source=config.source.source_id), todo=todo)
