"""`pidts status` prints the state of a task by the target's records, as text or as JSON, and ends with the exit code of
this state.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.apply.unseen_tables import record_unseen
from pidts.cli.app import run_command
from pidts.cli.slow_step import asked, with_answer
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    Fenced,
    Halt,
    Kind,
    Lsn,
    PrecheckFailed,
    RowLock,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.plan import CopyState, HeldTables, Phase, PlanState
from pidts.replicate.status import StatusFile
from pidts.sandbox import Server
from pidts.source import connect
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
from pidts.task.config.servers import TargetSpec
from pidts.task.config.task_file import load_parts
from pidts.task.operate.backlog import HeldTablesOfSource
from pidts.task.operate.pause import Pause, PauseFile
from pidts.task.operate.run_end import remembered_end
from pidts.task.operate.sole_run import sole_run
from pidts.task.operate.status import SourceStatus, TaskStatus, task_status

Output = pytest.CaptureFixture[str]
RunSql = Callable[..., list[tuple[Any, ...]]]
TASK = """
name: t
task-mode: all
shard-mode: pessimistic
target-database: {target}
mysql-instances:
  - {{source-id: s1, from: {{host: 127.0.0.1, port: 9, user: root}}, route-rules: [orders]}}
  - {{source-id: s2, from: {{host: 127.0.0.1, port: 9, user: root}}, route-rules: [orders]}}
routes: {{orders: {{schema-pattern: "shop*", table-pattern: "t_*", target-schema: shop, target-table: orders}}}}
pidts: {{relay: ./relay}}
"""
A, B, T_1, T_2 = (TableName("shop", name) for name in ("a", "b", "t_1", "t_2"))
_numbers = itertools.count()


def at(number: int) -> Lsn:
    return Lsn(0, 1, 1000 + number)


def waits(table: TableName, lsn: Lsn, code: str = "shard-awaits", *awaits: str, **more: Any) -> Halt:
    values = {"statement": f"ALTER TABLE {table.name} ADD x INT", "position": f"bin.000001:{lsn.offset}", **more}
    since = time.time() - 3720
    return Halt(tables=(table,), lsn=lsn, code=code, what="so", todo="Do", awaits=awaits, since=since, **values)


class RecordedTask:
    """A task of two sources whose target has the records that a run would have made."""

    def __init__(self, folder: Path, target: Target, about: str, capsys: Output) -> None:
        self.path, self.target, self._capsys = folder / "t.yaml", target, capsys
        self.path.write_text(TASK.format(target=about))

    def record(self, step: Callable[[TargetSession], None]) -> None:
        with closing(self.target.connect()) as session:
            step(session)

    def is_at(self, source: str, *states: PlanState) -> None:
        """Sets the places of the task's workers."""

        def step(session: TargetSession) -> None:
            session.meta.prepare()
            start = Checkpoint(task="t", source=source, worker=0, lsn=at(0))
            for row, state in zip(session.meta.checkpoints.claim("t", source, len(states), start), states, strict=True):
                place = f"bin.000001:{state.lsn.offset}"
                session.begin()
                session.meta.checkpoints.lock("t", source, row.worker)
                session.meta.checkpoints.save(
                    replace(row, lsn=state.lsn, gtid="0-1-7", position=place, copy=state.copy_json(row.epoch))
                )
                session.commit()

        self.record(step)

    def has(self, source: str, *tables: TableName, columns: tuple[str, ...] = ("id",)) -> None:
        """Records the structures of these tables."""
        all_of = tuple(Column(name, ColumnType(Kind.INT)) for name in columns)

        def step(session: TargetSession) -> None:
            session.begin()
            session.meta.structures.save(
                "t", SourceTablesKey(source), at(0), {name: Table(name, all_of) for name in tables}
            )
            session.commit()

        self.record(step)

    def halts(self, source: str, *halts: Halt) -> None:
        def step(session: TargetSession) -> None:
            for halt in halts:
                session.meta.halts.save("t", source, halt)

        self.record(step)

    def status(self, code: int = 0, command: str = "status") -> dict[str, Any]:
        assert run_command([command, str(self.path), "--json"]) == code
        said: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return said

    def text(self, code: int = 0) -> str:
        assert run_command(["status", str(self.path)]) == code
        return self._capsys.readouterr().out


@pytest.fixture
def recorded(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedTask]:
    target = ValuesTarget(f"status {next(_numbers)}")
    monkeypatch.setattr(TargetSpec, "server", target)
    yield RecordedTask(tmp_path, target, "{host: 127.0.0.1, port: 9, user: root}", capsys)
    target.forget()


def test_a_task_that_has_not_begun_gets_a_message_about_it(recorded: RecordedTask) -> None:
    said = recorded.status()
    keys = ["task", "begun", "needs_operator", "sources", "locks", "uneven", "held_bytes", "held_lag_seconds"]
    assert list(said) == [*keys, "cutover", "ended", "runs", "process", "stopped_at", "was_killed", "known_tasks"]
    assert (said["runs"], said["process"], said["stopped_at"]) == (None, None, None)
    assert (said["begun"], said["locks"], said["held_bytes"]) == (False, [], 0)
    assert [(one["source"], one["applied"]["lsn"]) for one in said["sources"]] == [("s1", None), ("s2", None)]
    assert recorded.text() == "t: has not begun on this target\n"


def test_tasks_that_a_wrong_name_may_mean_are_listed(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.has("s1", A)
    other = recorded.path.read_text()

    def shown(name: str, sources: str = "s") -> tuple[list[str], list[Any]]:
        recorded.path.write_text(other.replace("name: t\n", f"name: {name}\n").replace("id: s", f"id: {sources}"))
        return recorded.text().splitlines(), recorded.status()["known_tasks"]

    assert shown("shop") == (
        [
            "shop: has not begun on this target",
            "  known      the target has records of task t (with source s1)",
            "             to see one of them, correct `name` and `source-id` in the task file",
        ],
        [{"task": "t", "sources": ["s1"]}],
    )
    assert shown("tt", "x")[1] == [{"task": "t", "sources": ["s1"]}], "a similar name"
    assert shown("t", "x")[1] == [{"task": "t", "sources": ["s1"]}], "the same name with another source"
    assert shown("shop", "x") == (["shop: has not begun on this target"], [])


def test_a_task_that_does_not_run_gets_a_message_about_it(
    recorded: RecordedTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def heard(source: str, ago: float) -> None:
        folder = recorded.path.parent / "relay" / source
        folder.mkdir(parents=True, exist_ok=True)
        status = {"time": time.time() - ago, "connected": True, "error": None}
        (folder / "status.json").write_text(json.dumps(status))

    def lack() -> str:
        return str(recorded.status()["sources"][0]["not_receiving"])

    recorded.is_at("s1", PlanState(at(9)))
    recorded.is_at("s2", PlanState(at(9)))
    assert [one["silent_since"] for one in recorded.status()["sources"]] == [None, None], "its relay is elsewhere"
    heard("s1", 3720)
    heard("s2", 5)
    assert "none of its log was received here since" in recorded.text()
    assert "is not running" not in recorded.text()
    assert "replicator-silent" in lack(), "as far as this machine can tell, the task may run"
    heard("s2", 60)
    assert "task-not-running" in lack()
    assert f"Start the task: pidts run {recorded.path}" in lack()
    assert "replicator" not in lack()
    assert "receives " not in recorded.text(), "the last line says that the task does not run"
    silent = [one["silent_since"] for one in recorded.status()["sources"]]
    assert all(isinstance(at, float) and at < time.time() - 59 for at in silent)
    assert "(1 h 2 min ago)" in recorded.text()
    assert (
        "t: it is not running, as far as this machine can tell; its replicator was last active here at "
        in recorded.text()
    )
    monkeypatch.setattr("pidts.task.operate.status.is_present", lambda *_: True)
    assert "replicator-silent" in lack()
    assert "t: it is running, but the source's log is not received here; " in recorded.text()


def test_the_end_of_a_run_and_its_death_are_visible_at_once(recorded: RecordedTask) -> None:
    for source in ("s1", "s2"):
        recorded.is_at(source, PlanState(at(9)))
    (config, _) = load_parts(recorded.path)
    assert recorded.status()["runs"] is None, "this machine has not run the task"
    with sole_run(config), remembered_end(config):
        assert f"t: it is running (process {os.getpid()}); 2 of 2" in recorded.text()
        assert (recorded.status()["runs"], recorded.status()["process"]) == (True, os.getpid())
    assert "t: it is not running, as far as this machine can tell; the last run here ended at " in recorded.text()
    said = recorded.status()
    assert (said["runs"], said["ended"], said["stopped_at"]) == (False, None, pytest.approx(time.time(), abs=20))
    assert not said["was_killed"]
    (config.relay / "t.ended").unlink()  # a process that is killed leaves no record
    killed = f"""\
t: the last run here did not end in order: it was killed, or this machine went down
  do         Start the task again: pidts run {recorded.path} (with a service: `pidts start`, not `pidts run`)
t: it is not running, as far as this machine can tell; """
    assert f"{killed}2 of 2 sources do not answer; action needed, see above" in recorded.text(5)
    assert recorded.status(5)["was_killed"]
    assert recorded.status(5)["needs_operator"]
    (config.relay / "s1").mkdir()
    StatusFile(config.relay / "s1" / "status.json", "s1").update(connected=True)
    assert f"{killed[:-2]}; its replicator was last active here at" in recorded.text(5)
    with pytest.raises(Fenced), sole_run(config), remembered_end(config):
        raise Fenced("fenced", "another run has taken over the task")
    assert not recorded.status()["was_killed"]


def test_a_killed_run_needs_nobody_if_another_machine_has_moved_the_checkpoint_since() -> None:
    """Some targets do not show the runs of other machines."""

    def has_died(moved_at: float) -> bool:
        held = HeldTablesOfSource("s1", {}, 0)
        source = SourceStatus(source="s1", server="h:1", held=held, moved_at=moved_at, heard_at=1000.0)
        return TaskStatus("t", (source,), has_run_here=True, was_killed=True).needs_operator

    assert has_died(990.0)
    assert has_died(1030.0), "the clocks of two machines may differ"
    assert not has_died(1061.0)


def test_the_advice_after_the_last_run_names_the_task_file(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(1)))
    error = PrecheckFailed("target-denied", "no such user", todo="Run: pidts grants TASK --only target\nThen this")
    (config, _) = load_parts(recorded.path)
    config.relay.mkdir(exist_ok=True)
    with pytest.raises(PrecheckFailed), remembered_end(config):
        raise error
    assert f"  do         Run: pidts grants {recorded.path} --only target\n             Then this\n" in recorded.text()


def test_an_error_that_the_log_the_relay_and_the_last_run_have_is_written_out_once(recorded: RecordedTask) -> None:
    for source in ("s1", "s2"):
        recorded.is_at(source, PlanState(at(9)))
    (config, _) = load_parts(recorded.path)
    with pytest.raises(Transient) as caught:
        connect(config.source.server)
    error = caught.value
    folder = config.relay / "s1"
    folder.mkdir(parents=True)
    StatusFile(folder / "status.json", "s1").update(connected=False, error=error)
    with pytest.raises(PrecheckFailed), remembered_end(config):
        raise PrecheckFailed(error.code, error.what, todo=error.todo)
    text = recorded.text()
    assert text.count(error.what) == 2, "where each of the two logs ends"
    assert text.count(f": [{error.code}], as above\n") == 2


def test_a_relay_on_a_full_disk_waits_for_an_operator(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.is_at("s2", PlanState(at(9)))
    folder = recorded.path.parent / "relay" / "s1"
    folder.mkdir(parents=True)
    status_of = StatusFile(folder / "status.json", "s1")
    status_of.update(connected=True)
    assert recorded.status()["sources"][0]["not_receiving"] is None
    status_of.update(connected=False, error=Transient("source-lost", "no answer"))
    assert recorded.status()["sources"][0]["not_receiving"]["code"] == "source-lost", "it is only waited for"
    status_of.update(error=Transient("relay-full", "no room for the relay", todo="Make room."))
    said = recorded.status(5)
    assert said["needs_operator"]
    assert said["sources"][0]["not_receiving"]["since"] == pytest.approx(time.time(), abs=20)
    text = recorded.text(5)
    assert "  receives   nothing since" in text
    assert "[relay-full] no room for the relay. Make room." in text
    assert "; action needed, see above\n" in text


def test_a_pause_between_two_attempts_is_visible_while_the_run_lives(recorded: RecordedTask) -> None:
    for source in ("s1", "s2"):
        recorded.is_at(source, PlanState(at(9)))
    (config, _) = load_parts(recorded.path)
    full = Transient("target-full", "the target has no space", todo="Make room, then run: pidts status TASK")
    with sole_run(config):
        file = PauseFile(config)
        file.store({"s1": Pause(full, time.time() - 125, time.time() + 25)})
        paused = [source["paused"] for source in recorded.status()["sources"]]
        assert paused[1] is None
        assert (paused[0]["code"], paused[0]["since"]) == ("target-full", pytest.approx(time.time() - 125, abs=20))
        assert paused[0]["next_attempt"] == pytest.approx(time.time() + 25, abs=20)
        text = recorded.text()
        assert "  paused     since " in text
        advice = f"Make room, then run: pidts status {recorded.path}"
        assert f"(2 min ago): [target-full] the target has no space. {advice}\n" in text
        assert "             the next attempt begins at " in text
        assert f"t: it is running (process {os.getpid()}), but is paused after an error, see above; " in text
        file.store({"s1": Pause(full, time.time() - 125, time.time() - 1)})
        assert "             the next attempt has begun at " in recorded.text()
        file.store({})
        assert "paused" not in recorded.text()
        file.store({"s1": Pause(full, time.time(), time.time())})
    assert "paused" not in recorded.text(5), "a run that was killed leaves its record"


def test_while_the_target_does_not_answer_the_state_of_the_run_here_comes_before_the_error(
    tmp_path: Path, capsys: Output
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TASK.format(target="{host: 127.0.0.1, port: 9, user: root}"))
    (config, _) = load_parts(path)

    def status(*words: str) -> Any:
        assert run_command(["status", str(path), *words]) == 1
        return capsys.readouterr()

    pause = Pause(Transient("target-full", "no space", todo="Make room"), time.time() - 125, time.time() + 25)
    said = status()
    assert said.out == "t: the rest of the status is on the target, which cannot be read now\n"
    assert "error [target-unreachable] " in said.err
    with sole_run(config):
        PauseFile(config).store({"s2": pause})
        found = json.loads(status("--json").out)
        said = status()
    assert found["error"]["code"] == "target-unreachable"
    assert (found["task"], found["runs"], found["process"], found["ended"]) == ("t", True, os.getpid(), None)
    assert found["sources"] == [{"source": "s1", "paused": None}, {"source": "s2", "paused": pause.to_json()}]
    lines = said.out.splitlines()
    assert lines[0] == "s2:"
    assert "(2 min ago): [target-full] no space. Make room" in lines[1]
    assert "the next attempt begins at" in lines[2]
    assert lines[3] == (
        f"t: it is running (process {os.getpid()}), but is paused after an error, see above; "
        "the rest of the status is on the target, which cannot be read now"
    )
    with pytest.raises(PrecheckFailed), sole_run(config), remembered_end(config):
        raise PrecheckFailed("access-denied", "the login is refused")
    found = json.loads(status("--json").out)
    assert (found["runs"], found["process"], found["ended"]["code"]) == (False, None, "access-denied")
    assert (found["stopped_at"], found["was_killed"]) == (None, False)
    said = status()
    assert "t: the last run here ended at " in said.out
    assert "t: it is not running, as far as this machine can tell; the rest of the status" in said.out
    with sole_run(config), remembered_end(config):
        pass
    found = json.loads(status("--json").out)
    assert (found["stopped_at"], found["was_killed"]) == (pytest.approx(time.time(), abs=20), False)
    (config.relay / "t.ended").unlink()
    found = json.loads(status("--json").out)
    assert (found["stopped_at"], found["was_killed"]) == (None, True)


def test_each_step_names_the_server_that_is_asked(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    steps: list[str] = []

    def answer(ask: Callable[[], TaskStatus], target: str) -> TaskStatus:
        found = ask()
        steps.append(f"answer of {target}")
        return found

    task_status(load_parts(recorded.path), steps.append, answer)
    target = "the target mysql 127.0.0.1:9"
    assert steps == [
        f"waiting for {target}",
        f"reading the task's records on {target}",
        f"answer of {target}",  # its time limit does not hold for what follows
        "asking source s1 where its log ends",
        "looking in the relay for changes of source s1 that the target lacks",
        "asking source s2 where its log ends",
    ]


def test_a_task_that_waits_for_its_first_start_names_the_server(recorded: RecordedTask) -> None:
    (config, _) = load_parts(recorded.path)
    gone = Transient("source-unreachable", "the task waits for the source at h:1: refused")
    with sole_run(config):
        PauseFile(config).store({"s2": Pause(gone, time.time(), time.time() + 25)})
        assert "[source-unreachable] the task waits for the source at h:1: refused\n" in recorded.text()


def test_rows_that_are_set_aside_need_an_operator(recorded: RecordedTask) -> None:
    for source in ("s1", "s2"):
        recorded.is_at(source, PlanState(at(9)))
    assert not recorded.status()["needs_operator"]
    table = Table(A, (Column("id", ColumnType(Kind.INT)),))
    locks = [
        RowLock(table=table, id=f"{key}", key="", shown=f"id={key}", origin=A, lsn=at(5), why="so", since=1.0)
        for key in (1, 2)
    ]

    def lock(session: TargetSession) -> None:
        session.begin()
        session.meta.row_locks.add("t", "s2", locks)
        session.commit()

    recorded.record(lock)
    said = recorded.status(5)
    assert said["needs_operator"]
    assert [source["locked_rows"] for source in said["sources"]] == [[], [{"table": "shop.a", "rows": 2}]]
    text = recorded.text(5)
    assert "  locked     shop.a: 2 rows differ from the source\n" in text
    assert f"             see them: pidts locks list {recorded.path}\n" in text
    assert "; action needed, see above\n" in text


def test_shards_that_lack_a_column_of_others_are_reported(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.is_at("s2", PlanState(at(9)))
    recorded.has("s1", T_1, A)
    recorded.has("s2", T_1, T_2)
    recorded.has("s2", A, columns=("id",))
    assert recorded.status()["uneven"] == []
    recorded.has("s1", T_1, columns=("ID", "note"))
    assert recorded.status()["uneven"] == [
        {
            "target": "shop.orders",
            "column": "note",
            "having": ["s1: shop.t_1"],
            "lacking": ["s2: shop.t_1", "s2: shop.t_2"],
        }
    ]
    shown = recorded.text()
    assert "shop.orders: not all of its shards have the same columns\n" in shown
    assert "  column     note: 1 of 3 shards have it, only s1: shop.t_1\n" in shown
    recorded.has("s2", T_1, columns=("note", "id"))
    assert "note: 2 of 3 shards have it, all but s2: shop.t_2\n" in recorded.text()


def test_tables_that_the_account_does_not_see_are_named_until_the_task_has_their_structures(
    recorded: RecordedTask,
) -> None:
    recorded.is_at("s1", PlanState(at(9)))

    def step(session: TargetSession) -> None:
        for table in (B, A):
            session.begin()
            record_unseen(session, "t", "s1", [table])
            session.commit()

    recorded.record(step)
    assert recorded.status()["sources"][0]["unseen"] == ["shop.a", "shop.b"]
    assert "  unseen     shop.a: the account does not see it on the source" in recorded.text()
    assert f"pidts run {recorded.path} --resync s1:shop.a,s1:shop.b\n" in recorded.text()
    assert "if the table still exists on the source, give the account SELECT" in recorded.text()
    recorded.has("s1", A)
    assert recorded.status()["sources"][0]["unseen"] == ["shop.b"]


def test_each_source_is_as_far_as_its_slowest_worker(recorded: RecordedTask) -> None:
    copy = {A: CopyState(rows=500, estimate=2000), B: CopyState(phase=Phase.FINISH, rows=7)}
    recorded.is_at("s1", PlanState(at(9), copy), PlanState(at(5), copy))
    recorded.has("s1", A, B, T_1)
    recorded.has("s2", T_1)
    said = recorded.status(command="query-status")
    (one, other) = said["sources"]
    assert list(one) == [
        "source",
        "server",
        "standbys",
        "applied",
        "moved_at",
        "silent_since",
        "not_receiving",
        "paused",
        "copy",
        "held",
        "halted",
        "locked_rows",
        "due_copies",
        "unseen",
        "log_end",
        "log_end_error",
        "unapplied_bytes",
        "lag_seconds",
    ]
    assert (one["log_end"], one["log_end_error"]["code"]) == (None, "source-unreachable")
    assert one["applied"] == {"lsn": str(at(5)), "gtid": "0-1-7", "file": "bin.000001", "position": 1005}
    assert (one["copy"]["done"], one["copy"]["of"]) == (1, 3)
    assert [(table["name"], table["copied"], table["estimate"]) for table in one["copy"]["tables"]] == [
        ("shop.a", 500, 2000),
        ("shop.b", 7, 0),
    ]
    assert (one["held"], one["halted"]) == ({"tables": {}, "log_bytes": 0, "lag_seconds": None}, [])
    assert other["applied"] == {"lsn": None, "gtid": "", "file": None, "position": None}
    text = recorded.text()
    for words in (
        f"s1: applied up to bin.000001:1005, Lsn {at(5)}, GTID 0-1-7",
        "copied     1 of 3 tables",
        "copying    shop.a: 500 of about 2,000 rows",
        "copying    shop.b: creating keys",
        "s2: has not begun",
        "t: 2 of 2 sources do not answer; nothing is halted",
    ):
        assert words in text


def test_shards_that_wait_are_named_and_are_nothing_for_an_operator(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9), held=(HeldTables(frozenset({T_1}), at(4)),)))
    recorded.is_at("s2", PlanState(at(9)))
    halt = waits(T_1, at(4), "shard-awaits", "s2: shop.t_1", "s2: shop.t_2")
    recorded.halts("s1", halt)
    said = recorded.status()
    assert not said["needs_operator"]
    (lock,) = said["locks"]
    assert (lock["target"], lock["awaited"]) == ("shop.orders", ["s2: shop.t_1", "s2: shop.t_2"])
    assert lock["awaited_since"] == dict.fromkeys(lock["awaited"], halt.since)
    assert [(one["source"], one["tables"], one["since"]) for one in lock["arrived"]] == [
        ("s1", ["shop.t_1"], halt.since)
    ]
    (one, _) = said["sources"]
    elsewhere = {"tables": {"shop.t_1": str(at(4))}, "log_bytes": None, "lag_seconds": None}
    assert one["held"] == elsewhere, "the relay is not on this machine"
    assert (said["held_bytes"], said["held_lag_seconds"]) == (None, None)
    assert [(found["code"], found["needs_operator"]) for found in one["halted"]] == [("shard-awaits", False)]
    text = recorded.text()
    for words in (
        f"waiting    shop.t_1: applied only up to bin.000001:1004, Lsn {at(4)}",
        "the relay is on another machine",
        "shop.orders: a schema change waits for all shards, since ",
        "reached by s1: shop.t_1 at bin.000001:1004",
        "waits for  s2: shop.t_2, since ",
        "(1 h 2 min ago)",
        "t: 2 of 2 sources do not answer; shards wait for each other; nothing is halted",
    ):
        assert words in text


def test_shards_that_disagree_are_something_for_an_operator(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.is_at("s2", PlanState(at(9)))
    recorded.halts("s1", waits(T_1, at(4), "shards-disagree", "s2: shop.t_2"))
    recorded.halts("s2", waits(T_2, at(4), "shards-disagree", "s1: shop.t_1"))
    said = recorded.status(code=5)
    assert said["needs_operator"]
    (lock,) = said["locks"]
    assert (lock["disagrees"], lock["awaited"], lock["awaited_since"]) == (True, [], {})
    assert "; action needed, see above" in recorded.text(code=5)


def test_a_halt_that_no_other_shard_can_end_needs_an_operator(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.halts("s1", waits(T_1, at(4), "shard-no-place"))
    said = recorded.status(code=5)
    assert said["needs_operator"]
    assert [found["needs_operator"] for found in said["sources"][0]["halted"]] == [True]
    text = recorded.text(code=5)
    assert "; action needed, see above" in text
    assert "of 1 have reached it" not in text
    assert "unlock" not in text


def test_a_refused_row_needs_an_operator(recorded: RecordedTask) -> None:
    recorded.is_at("s1", PlanState(at(9)))
    recorded.halts("s1", waits(B, at(4), "ddl-awaits-tables", "s1: shop.a"))
    recorded.status()
    recorded.halts("s1", waits(A, at(3), "target-refused"))
    found = {one["code"]: one for one in recorded.status(code=5)["sources"][0]["halted"]}
    refused = found["target-refused"]
    assert (refused["tables"], refused["needs_operator"]) == (["shop.a"], True)
    assert f"pidts ddl retry {recorded.path} --source s1 --at {at(3)}" in refused["advice"]
    assert not found["ddl-awaits-tables"]["needs_operator"]
    assert "s1: shop.a: halted at bin.000001:1003" in recorded.text(code=5)


def test_of_thousands_of_tables_people_see_the_first(recorded: RecordedTask) -> None:
    copy = {TableName("shop", f"c{number:04}"): CopyState(estimate=9) for number in range(3000)}
    recorded.is_at("s1", PlanState(at(9), copy))
    text = recorded.text()
    assert text.count("copying    ") == 12
    assert "and 2,988 more" in text
    assert "copied     0 of 3,000 tables" in text
    assert len(recorded.status()["sources"][0]["copy"]["tables"]) == 3000


@pytest.fixture(params=["mariadb", "postgres"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: Output, run_sql: RunSql
) -> Iterator[tuple[RecordedTask, Callable[[], bool]]]:
    """Yields a task whose target has no meta schema, and a function that says whether the target has one by now."""
    server: Server = request.getfixturevalue(request.param)
    meta = f"status_{next(_numbers)}_{tmp_path.name[-20:]}".lower()
    about: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user}
    about |= {"password": server.password, "type": "mysql"}
    target: Target = MySqlTarget(server.host, server.port, server.user, server.password, meta_schema=meta)
    if server.kind == "postgres":
        about |= {"type": "postgresql", "database": "postgres"}
        target = PostgresTarget(server.host, server.port, server.user, server.password, "postgres", meta_schema=meta)
    recorded = RecordedTask(tmp_path, target, json.dumps(about), capsys)
    recorded.path.write_text(f"{recorded.path.read_text()}\nmeta-schema: {meta}\n")
    schemas = f"SELECT 1 FROM information_schema.schemata WHERE schema_name = '{meta}'"
    yield recorded, lambda: bool(run_sql(server, schemas))
    run_sql(server, f"DROP SCHEMA IF EXISTS {meta}{' CASCADE' if server.kind == 'postgres' else ''}")


def test_a_server_is_asked_and_not_changed(served: tuple[RecordedTask, Callable[[], bool]]) -> None:
    recorded, is_touched = served
    assert not recorded.status()["begun"]
    assert not is_touched(), "nothing is made there by a look"
    recorded.is_at(
        "s1", PlanState(at(9), {A: CopyState(rows=5)}, (HeldTables(frozenset({T_1}), at(4)),)), PlanState(at(9))
    )
    recorded.has("s1", A, B, T_1)
    recorded.halts("s1", waits(T_1, at(4), "shard-awaits", "s2: shop.t_1"))
    said = recorded.status()
    (one, other) = said["sources"]
    assert one["applied"]["lsn"] == str(at(9))
    assert abs(one["moved_at"] - time.time()) < 60, "by the target's clock, whatever its time zone is"
    assert other["moved_at"] is None
    assert one["copy"]["of"] == 3
    assert list(one["held"]["tables"]) == ["shop.t_1"]
    assert [lock["target"] for lock in said["locks"]] == ["shop.orders"]
    assert "moved      " in recorded.text()


@pytest.mark.slow
def test_a_command_says_that_it_waits_for_a_silent_target(tmp_path: Path, capsys: Output) -> None:
    """A target that accepts connections and does not answer looks like one that is only slow."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        path = tmp_path / "t.yaml"
        target = f"{{type: postgresql, host: 127.0.0.1, port: {port}, user: u, database: d}}"
        path.write_text(TASK.format(target=target))
        ends = threading.Timer(8.0, silent.close)

        def answer() -> None:
            ends.start()
            with silent.accept()[0]:
                ends.join()

        threading.Thread(target=answer, daemon=True).start()
        assert run_command(["status", str(path)]) != 0
    said = f"; now: waiting for the target postgresql 127.0.0.1:{port}/d\n"
    assert said in capsys.readouterr().err


def test_a_command_gives_up_a_target_that_does_not_answer() -> None:
    never = threading.Event()
    with pytest.raises(Transient, match=r"mysql 127\.0\.0\.1:3306 has not answered within 0 seconds") as raised:
        asked(never.wait, "the target mysql 127.0.0.1:3306", limit=0.1)()
    assert raised.value.code == "target-unreachable"
    never.set()
    assert with_answer(never.wait, "the target")


def test_a_copy_whose_first_part_is_not_finished_is_not_shown_as_zero_rows(recorded: RecordedTask) -> None:
    """The target may have rows of this part already: they count when the part is finished."""
    recorded.is_at("s1", PlanState(at(5), {A: CopyState(estimate=2000), B: CopyState()}))
    recorded.has("s1", A, B)
    text = recorded.text()
    assert "copying    shop.a: no part is finished yet; about 2,000 rows\n" in text
    assert "copying    shop.b: no part is finished yet\n" in text
