"""A task continues by itself after its relay was damaged, between runs or during a run, and after its target could not
be written to for a while.

The target becomes equal to the source. If the relay is damaged at the same place again and again, the task halts before
this place.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
import yaml
from tests.running import PIDTS
from tests.spark.commands import Run, Task

from pidts.model import Lsn
from pidts.relay import RelayReader
from pidts.relay.folder import Folder
from pidts.relay.refetch import read_refetches
from pidts.relay.segments.index import entry_key, frame, payloads

LOCK = "SELECT * FROM pidts_meta.checkpoint FOR UPDATE"


class Ledger:
    """A table with numbered rows, on both sides."""

    def __init__(self, source, target, schema, open_session):
        self.schema, self.source, self.target = schema, open_session(source), open_session(target)
        self.open_session = open_session
        self.locker = open_session(target)
        self.run(f"CREATE TABLE {schema}.ledger (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(200) NOT NULL)")
        self.run(f"CREATE TABLE {schema}.sum (id INT PRIMARY KEY, entries INT NOT NULL)")
        self.run(f"INSERT INTO {schema}.sum VALUES (1, 0)")

    def run(self, statement):
        with self.source.cursor() as cursor:
            cursor.execute(statement)

    def write(self, count):
        """Makes this number of transactions, each of which depends on the one before it."""
        for _ in range(count):
            self.run("BEGIN")
            self.run(f"INSERT INTO {self.schema}.ledger (text) VALUES (REPEAT('x', 40))")
            self.run(f"UPDATE {self.schema}.sum SET entries = entries + 1")
            self.run("COMMIT")

    def rows(self, session):
        with session.cursor() as cursor:
            cursor.execute(f"SELECT id, text FROM {self.schema}.ledger ORDER BY id")
            found = cursor.fetchall()
            cursor.execute(f"SELECT * FROM {self.schema}.sum")
            return found, cursor.fetchall()

    def is_equal(self) -> bool:
        try:
            return bool(self.rows(self.source) == self.rows(self.target))
        except pymysql.err.ProgrammingError:
            return False

    def lock(self):
        """Prevents all commits on the target until `unlock`."""
        with self.locker.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(LOCK)

    def unlock(self):
        self.locker.rollback()


class Relay:
    """The relay of a task's folder, and ways to damage it.

    The index records that are written into it have valid checksums.
    """

    def __init__(self, path: Path) -> None:
        self.folder = Folder.of(path, "one")
        self.reader = RelayReader(path, "one")

    @property
    def index(self) -> Path:
        return self.folder.index(self.folder.numbers()[-1])

    def received(self, ledger: Ledger) -> bool:
        with ledger.source.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, place = cursor.fetchone()[:2]
        received = self.reader.received
        return received is not None and received >= Lsn(0, int(file.rpartition(".")[2]), place)

    def tamper(self, change: Callable[[list[bytes]], None]) -> None:
        found = [payload for _, payload in payloads(self.index.read_bytes())]
        change(found)
        self.index.write_bytes(b"".join(map(frame, found)))

    def remove(self) -> None:
        self.tamper(lambda found: found.__delitem__(-8))

    def swap(self) -> None:
        self.tamper(lambda found: found.__setitem__(slice(-8, -6), [found[-7], found[-8]]))

    def repeat(self) -> None:
        self.tamper(lambda found: found.insert(-4, found[-8]))

    def damage(self) -> None:
        """Damages the events of one of the last transactions; their index stays valid."""
        *_, (_, last) = payloads(self.index.read_bytes())
        assert entry_key(last) is not None
        log = self.folder.log(self.folder.numbers()[-1])
        with log.open("r+b") as file:
            at = log.stat().st_size - 1500
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))

    @property
    def refetched(self) -> list[str]:
        return [one.why for one in read_refetches(self.folder).done]


@pytest.fixture
def world(mariadb, database, make_task, open_session, target_server):
    target = target_server("mariadb")
    ledger = Ledger(mariadb, target, database, open_session)
    task = make_task(mariadb, target, [database])
    return ledger, task, Relay(task.path.parent / "relay"), target


def fill(task: Task, until: Callable[[], bool], eventually: Callable[..., None]) -> None:
    """Runs only the replicator."""
    with subprocess.Popen([*PIDTS, "replicate", str(task.path)], stderr=subprocess.DEVNULL) as process:
        try:
            eventually(until, 30, "the relay has it")
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.spark
@pytest.mark.timeout(500)
@pytest.mark.long
def test_damaged_log_is_fetched_again_and_permanent_damage_halts(world, eventually):
    ledger, task, relay, _ = world
    ledger.write(5)
    task.sync()

    # Between two runs: all kinds of damage at once. The first damage is found first, and is cut off with all others.
    ledger.write(60)
    fill(task, lambda: relay.received(ledger), eventually)
    relay.swap()
    relay.repeat()
    relay.damage()
    run = task.start()
    try:
        eventually(ledger.is_equal, 120, "the target has everything")
        assert relay.refetched == ["relay-disorder"]
        # During a run: the damaged log was not planned yet, because the batch before it waits for a lock.
        for broken, why in ((relay.remove, "relay-gap"), (relay.repeat, None), (relay.damage, "relay-corrupt")):
            before = relay.refetched
            break_behind_a_lock(ledger, relay, broken, eventually)
            eventually(ledger.is_equal, 120, f"the target has everything after {broken.__name__}")
            assert relay.refetched == before + ([why] if why else [])
        break_again_and_again(ledger, relay, eventually, run)
        assert run.process.wait(60) == 5
    except AssertionError as error:
        error.add_note(task.logs())
        raise
    said = run.log.read_text()
    assert "[relay-gap]" in said
    assert "again" in said
    assert "nothing after the break is applied" in said
    found, ((_, entries),) = ledger.rows(ledger.target)
    everything, _ = ledger.rows(ledger.source)
    assert list(found) == list(everything[: len(found)])
    assert entries == len(found) < len(everything)


def break_behind_a_lock(ledger: Ledger, relay: Relay, broken: Callable[[], None], eventually: Callable[..., None]):
    """Lets one batch wait for a lock on the target, and meanwhile fills and damages the relay after it."""
    eventually(ledger.is_equal, 120, "the target has caught up")
    ledger.lock()
    try:
        ledger.write(1)
        eventually(lambda: relay.received(ledger), 30, "the relay has it")
        time.sleep(1.0)
        ledger.write(40)
        eventually(lambda: relay.received(ledger), 30, "the relay has it")
        broken()
    finally:
        ledger.unlock()


def break_again_and_again(ledger: Ledger, relay: Relay, eventually: Callable[..., None], run: Run) -> None:
    """Damages the log that is fetched again at the same place again and again, while its reader is stopped."""
    cuts = len(relay.refetched)
    eventually(ledger.is_equal, 120, "the target has caught up")
    ledger.lock()
    try:
        ledger.write(1)
        eventually(lambda: relay.received(ledger), 30, "the relay has it")
        time.sleep(1.0)
        ledger.write(40)
        eventually(lambda: relay.received(ledger), 30, "the relay has it")
        place = entry_key([payload for _, payload in payloads(relay.index.read_bytes())][-20])
        relay.tamper(lambda found: remove_at(found, place))
    finally:
        ledger.unlock()
    deadline = time.monotonic() + 30
    while len(relay.refetched) == cuts and time.monotonic() < deadline:
        time.sleep(0.001)
    run.process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: relay.received(ledger), 30, "it is filled again")
        relay.tamper(lambda found: remove_at(found, place))
    finally:
        run.process.send_signal(signal.SIGCONT)


def remove_at(found: list[bytes], place: object) -> None:
    found[:] = [payload for payload in found if entry_key(payload) != place]


@pytest.mark.spark
@pytest.mark.timeout(500)
def test_a_target_that_cannot_be_written_is_waited_for(world, eventually):
    ledger, task, _, target = world
    with ledger.locker.cursor() as cursor:
        # The task needs an account that may not write while the server is read-only.
        cursor.execute("CREATE USER plain IDENTIFIED BY 'plain'")
        cursor.execute("GRANT ALL ON *.* TO plain")
        cursor.execute("REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM plain")
    found = yaml.safe_load(task.path.read_text())
    found["target-database"] |= {"user": "plain", "password": "plain"}
    task.path.write_text(yaml.safe_dump(found))
    ledger.write(5)
    run = task.start("--json")
    try:
        eventually(ledger.is_equal, 200, "the target has caught up")
        with ledger.locker.cursor() as cursor:
            cursor.execute("SET GLOBAL read_only = 1")
        ledger.write(5)
        eventually(lambda: paused(run, "read-only"), 60, "it says that the target is read-only")
        target.kill()
        eventually(lambda: paused(run, "target-unreachable"), 60, "it says that the target is gone")
        assert f"mysql 127.0.0.1:{target.port} has not answered since" in run.log.read_text()
        ledger.write(5)
        target.restart()
        ledger.target = ledger.open_session(target)
        eventually(ledger.is_equal, 120, "the target has caught up")
        time.sleep(0.5)
        assert run.stop() == 0
    except AssertionError as error:
        error.add_note(task.logs())
        raise
    summary = json.loads(run.log.read_text().splitlines()[-1])
    assert (summary["stage"], summary["cause"]) == ("stopped", None)


def paused(run: Run, cause: str) -> bool:
    lines = run.log.read_text().splitlines()
    shown = [line for line in lines if ": paused; [" in line and "; next attempt " in line]
    logged = [line for line in lines if "paused, going on" in line and cause in line]
    return bool(shown and logged)
