"""`pidts status` of a file with several zones shows each direction, even if one target does not answer."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.cli.zones.command import directions_of, show_zones_status
from pidts.model import Checkpoint, Lsn
from pidts.sandbox import Server
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.config.zones_file import Direction
from pidts.task.operate.presence import show_presence
from pidts.task.operate.zones import statuses_into_zone


def login(server: Server) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "user": server.user, "password": server.password}


def zones_file(folder: Path, name: str, servers: dict[str, Any]) -> Path:
    file = folder / "z.yaml"
    file.write_text(json.dumps({"name": name, "pidts": {"zones": {"servers": servers}, "relay": "relay"}}))
    return file


def test_the_status_is_a_table_of_zones(
    mariadb: Server,
    mysql97: Server,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_sql: Callable[..., Any],
) -> None:
    unknown_transactions = {"host": "127.0.0.1", "port": 9, "user": "u"}
    servers = {"a": login(mariadb), "b": login(mysql97), "c": unknown_transactions}
    file = zones_file(tmp_path, f"z_{database}", servers)
    config = load_task(file.with_name("z.yaml@a-b"))
    try:
        with closing(config.target.server.connect()) as target:
            target.meta.prepare()
            first = Checkpoint(task=config.name, source="a", worker=0, lsn=Lsn(0, 1, 4))
            target.meta.checkpoints.claim(config.name, "a", 1, first)
        assert run_command(["status", str(file), "--json"]) == 1
        found = json.loads(capsys.readouterr().out)["directions"]
        stages = {f"{one['from']}{one['to']}": one["stage"] for one in found}
        assert stages == {
            "ab": "syncing", "ac": "unknown", "ba": "not begun", "bc": "unknown", "ca": "not begun", "cb": "not begun",
        }  # fmt: skip
        assert {one["lag"] for one in found} == {None}, "no relay of these is here"
        # The replicator on this machine is silent, while a run is seen on the target, or is not seen.
        relay = config.relay / "a"
        relay.mkdir(parents=True)
        (relay / "status.json").write_text(json.dumps({"time": time.time() - 60}))
        direction = next(one for one in directions_of(file) if (one.source, one.target) == ("a", "b"))
        assert [one.stage for one in statuses_into_zone([(direction, config)])] == ["stopped"]
        with closing(config.target.server.connect()) as run:
            show_presence(run, config.name, "a")
            assert [one.stage for one in statuses_into_zone([(direction, config)])] == ["not receiving"]
        shutil.rmtree(config.relay)
        assert run_command(["status", str(file)]) == 1
        shown = capsys.readouterr()
        assert [line.split() for line in shown.out.splitlines()] == [
            ["from", "\\", "to", "a", "b", "c"],
            ["a", "-", "syncing", "unknown"],
            ["b", "not", "begun", "-", "unknown"],
            ["c", "not", "begun", "not", "begun", "-"],
        ]
        assert f"See: pidts status {file}@a-c" in shown.err
    finally:
        run_sql(mysql97, f"DELETE FROM pidts_meta.checkpoint WHERE task = '{config.name}'")


def test_each_zone_is_asked_on_one_session(
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_sql: Callable[..., Any],
) -> None:
    servers = {"a": mariadb, "b": mysql97, "c": mysql56}
    file = zones_file(tmp_path, f"z_{database}", {zone: login(one) for zone, one in servers.items()})

    def connections() -> dict[str, int]:
        return {zone: int(run_sql(one, "SHOW GLOBAL STATUS LIKE 'Connections'")[0][1]) for zone, one in servers.items()}

    looks = connections(), connections()
    assert show_zones_status(file, directions_of(file) or (), as_json=True) == 0
    assert len(json.loads(capsys.readouterr().out)["directions"]) == 6
    after = connections()
    for zone in servers:
        own = looks[1][zone] - looks[0][zone]
        assert after[zone] - looks[1][zone] - own == 1


def test_an_error_of_a_session_that_is_not_lost_is_no_reason_to_read_again(
    mysql97: Server, database: str, tmp_path: Path, run_sql: Callable[..., Any]
) -> None:
    file = zones_file(tmp_path, f"z_{database}", dict.fromkeys("abc", login(mysql97)))
    into = directions_into(file, "c")
    (direction, config), _ = into

    def connections() -> int:
        return int(run_sql(mysql97, "SHOW GLOBAL STATUS LIKE 'Connections'")[0][1])

    with closing(config.target.server.connect()) as target:
        target.meta.prepare()
        first = Checkpoint(task=config.name, source=direction.source, worker=0, lsn=Lsn(0, 1, 4))
        target.meta.checkpoints.claim(config.name, direction.source, 1, first)
    try:
        run_sql(mysql97, f"INSERT INTO pidts_meta.cutover (task, about) VALUES ('{config.name}', 'x')")
        before = connections()
        found = statuses_into_zone(into)
        assert [(one.stage, "[record-altered]" in one.error) for one in found] == [
            ("unknown", True),
            ("not begun", False),
        ]
        assert connections() - before == 1 + 1, "one session reads the states, one counts"
    finally:
        for table in ("checkpoint", "cutover"):
            run_sql(mysql97, f"DELETE FROM pidts_meta.{table} WHERE task = '{config.name}'")


def directions_into(file: Path, zone: str) -> list[tuple[Direction, TaskConfig]]:
    return [
        (one, load_task(file.with_name(f"z.yaml@{one.source}-{one.target}")))
        for one in directions_of(file)
        if one.target == zone
    ]


class Breaking(list[tuple[Direction, TaskConfig]]):
    """Directions into a zone. The session that reads their states is ended before the second direction is read."""

    def __init__(self, directions: Iterable[tuple[Direction, TaskConfig]], end: Callable[[], None]) -> None:
        super().__init__(directions)
        self._end: Callable[[], None] | None = end

    def __iter__(self) -> Iterator[tuple[Direction, TaskConfig]]:
        for number, one in enumerate(super().__iter__()):
            if number == 1 and self._end is not None:
                end, self._end = self._end, None
                end()
            yield one


def test_a_session_that_ends_between_two_directions_is_no_error(
    mysql97: Server, database: str, tmp_path: Path, run_sql: Callable[..., Any]
) -> None:
    user = f"z_{database}"[:30]
    run_sql(mysql97, f"CREATE USER {user} IDENTIFIED BY 'secret'")
    try:
        run_sql(mysql97, f"GRANT ALL ON *.* TO {user}")
        own = {**login(mysql97), "user": user, "password": "secret"}
        file = zones_file(tmp_path, f"z_{database}", dict.fromkeys("abc", own))
        ended: list[int] = []

        def end_session() -> None:
            asked = f"SELECT id FROM information_schema.processlist WHERE user = '{user}'"
            for (number,) in run_sql(mysql97, asked):
                run_sql(mysql97, f"KILL {number}")
                ended.append(number)

        found = statuses_into_zone(Breaking(directions_into(file, "c"), end_session))
        assert len(ended) == 1, "the session was ended before the second direction was read"
        assert [(one.stage, one.error) for one in found] == [("not begun", "")] * 2
    finally:
        run_sql(mysql97, f"DROP USER {user}")


def test_a_target_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"host": "127.0.0.1", "port": silent.getsockname()[1], "user": "u"}
        file = zones_file(tmp_path, "z", {"a": server, "b": server})
        assert show_zones_status(file, directions_of(file) or (), as_json=True, patience=0.2) == 1
    shown = capsys.readouterr()
    errors = [one["error"] for one in json.loads(shown.out)["directions"]]
    place = f"mysql 127.0.0.1:{server['port']}"
    for direction, error in zip(("a-b", "b-a"), errors, strict=True):
        assert f"the target {place} of {direction} has not answered within 0 seconds" in error


@pytest.mark.slow
def test_a_target_that_answers_late_is_named_while_the_command_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"host": "127.0.0.1", "port": silent.getsockname()[1], "user": "u"}
        file = zones_file(tmp_path, "z", {"a": server, "b": server})
        assert show_zones_status(file, directions_of(file) or (), as_json=True, patience=5) == 1
    shown = capsys.readouterr().err
    assert f"; now: waiting for the target mysql 127.0.0.1:{server['port']} of " in shown
    assert "the command waits" not in shown


def test_all_targets_are_asked_at_the_same_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, patience = tmp_path / "z.yaml", 2.0
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = {"host": "127.0.0.1", "port": silent.getsockname()[1], "user": "u"}
        zones = {"servers": dict.fromkeys("abcd", server)}
        file.write_text(json.dumps({"name": "z", "pidts": {"zones": zones, "relay": "relay"}}))
        begun = time.monotonic()
        assert show_zones_status(file, directions_of(file) or (), as_json=True, patience=patience) == 1
        took = time.monotonic() - begun
    found = json.loads(capsys.readouterr().out)["directions"]
    assert len(found) == 12
    assert took < len(found) * patience / 2


def test_a_fresh_file_passes_its_check_although_the_other_zones_are_empty(
    mariadb: Server,
    mysql97: Server,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    run_sql: Callable[..., Any],
) -> None:
    run_sql(mariadb, f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    file = tmp_path / "z.yaml"
    zones = {"servers": {"a": login(mariadb), "b": login(mysql97)}, "rules": {"block-allow-list": "ours"}}
    task = {
        "name": f"z_{database}",
        "block-allow-list": {"ours": {"do-dbs": [database]}},
        "pidts": {"zones": zones, "relay": "relay"},
    }
    file.write_text(json.dumps(task))
    run_command(["check", str(file), "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    tables = [one for of_direction in found for one in of_direction["findings"] if one["item"] == "table_list"]
    assert [one["ok"] for one in tables] == [True, True]
    assert "the tables are copied from zone a" in tables[1]["message"]


@pytest.mark.parametrize(
    "words", [["list"], ["owners"], ["move", "shop.orders", "--to", "a"], ["hand-over", "a"], ["return", "a"]]
)
def test_a_command_about_zones_refuses_a_file_without_zones(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps({"name": "shop"}))
    assert run_command(["zones", words[0], str(file), *words[1:]]) == 2
    assert "[missing-key] the file has no pidts.zones" in capsys.readouterr().err
