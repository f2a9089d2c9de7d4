"""`pidts relay`: it lists what the relay has, removes what no task needs, and never removes what a task needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.relay.sample_log import FORMAT, sealed

from pidts.cli.app import run_command
from pidts.model import Checkpoint, Lsn, TableName, Transaction
from pidts.relay import Origin, RelayWriter, list_segments
from pidts.relay.task_needs import TaskNeed
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.task.config.task_file import load_task
from pidts.task.operate.zones import lag_after

Output = pytest.CaptureFixture[str]
RunSql = Callable[..., list[tuple[Any, ...]]]
START = Lsn(0, 1, 4)
TASK = """
name: shop
task-mode: all
target-database: {{host: {host}, port: {port}, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts: {{relay: ./relay}}
"""


def place(number: int) -> Lsn:
    """Returns the place after this number of transactions."""
    return Lsn(0, 1, 4 + 123 * number)


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    """Writes a relay of twelve transactions in six segments."""
    relay = tmp_path / "relay"
    writer = RelayWriter.open(relay, "s", segment_bytes=350)
    writer.begin(Origin("server", "bin", 0), START, "0-1-0")
    writer.start_segment(FORMAT)
    for number in range(12):
        writer.append(sealed(19, bytes(100)))
        writer.commit(
            Transaction(
                lsn=place(number + 1),
                prev_lsn=place(number),
                begin=place(number),
                gtid=f"0-1-{number + 1}",
                timestamp=1_700_000_000 + number,
                row_events=1,
                tables=(TableName("shop", "orders"),),
            )
        )
        writer.sync()
    writer.close()
    assert len(list_segments(relay, "s")) == 6
    return relay


@pytest.fixture
def task(tmp_path: Path, relay: Path) -> Path:
    """Returns a task whose target does not answer."""
    path = tmp_path / "shop.yaml"
    path.write_text(TASK.format(host="127.0.0.1", port=9))
    return path


def printed(capsys: Output) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return data


def test_a_list_for_people(relay: Path, capsys: Output) -> None:
    TaskNeed(relay, "s", "shop", 3600).move(place(7))
    assert run_command(["relay", "list", str(relay), "--verify"]) == 0
    shown = capsys.readouterr().out
    assert f"in 6 segments, {relay / 's'}" in shown
    assert f"2  {place(12)}  bin.000001:{place(12).offset}  0-1-12  " in shown
    assert "2023-11-14 22:13:20 to 2023-11-14 22:13:21" in shown
    assert f"task shop: needs the log after {place(7)} (recorded" in shown
    assert "keeps all log of the last 3,600 s" in shown
    assert "every byte was read back; no damage was found" in shown


def test_a_list_for_machines(relay: Path, task: Path, capsys: Output) -> None:
    TaskNeed(relay, "s", "other").move(place(7))
    for named in (relay, relay / "s", task):
        assert run_command(["relay", "list", str(named), "--json"]) == 0
        (one,) = printed(capsys)["relays"]
        assert (one["source"], one["first"], one["received"]) == ("s", str(START), str(place(12)))
        assert [segment["entries"] for segment in one["segments"]] == [2] * 6
        assert one["segments"][2] | {"log_bytes": 0, "index_bytes": 0} == {
            "number": 3,
            "after": str(place(4)),
            "last": str(place(6)),
            "position": f"bin.000001:{place(6).offset}",
            "entries": 2,
            "first_gtid": "0-1-5",
            "last_gtid": "0-1-6",
            "first_time": 1_700_000_004,
            "last_time": 1_700_000_005,
            "log_bytes": 0,
            "index_bytes": 0,
        }
        tasks = {each["task"]: each for each in one["tasks"]}
        assert tasks["other"]["mark"] == str(place(7))
    assert tasks["shop"]["checkpoint_error"]["code"] == "target-unreachable"
    assert not tasks["shop"]["marked"]


def test_damage_is_reported_and_ends_with_5(relay: Path, capsys: Output) -> None:
    path = relay / "s" / "000000002.log"
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    assert run_command(["relay", "list", str(relay)]) == 0
    assert run_command(["relay", "list", str(relay), "--verify"]) == 5
    shown = capsys.readouterr().out
    assert f"broken {path}, byte " in shown
    assert "bad-checksum" in shown


def test_a_purge_is_a_dry_run_until_it_is_asked_for(relay: Path, capsys: Output) -> None:
    TaskNeed(relay, "s", "shop").move(place(7))
    assert run_command(["relay", "purge", str(relay)]) == 0
    shown = capsys.readouterr().out
    assert "s: would remove 3 of 6 segments" in shown
    assert "segment 4 stays, needed by: task shop" in shown
    assert "nothing was removed; to remove them, add --apply" in shown
    assert len(list_segments(relay, "s")) == 6
    assert run_command(["relay", "purge", str(relay), "--apply", "--json"]) == 0
    (done,) = printed(capsys)["relays"]
    assert (done["removed"], done["kept"], done["needed_from"]) == ([1, 2, 3], [4, 5, 6], str(place(7)))
    assert [segment.number for segment in list_segments(relay, "s")] == [4, 5, 6]


def test_a_purge_removes_nothing_that_a_task_needs(relay: Path, capsys: Output) -> None:
    TaskNeed(relay, "s", "shop").move(place(7))
    assert run_command(["relay", "purge", str(relay), "--apply", "--force", "--before", str(place(9))]) == 5
    assert "[relay-still-needed] task shop" in capsys.readouterr().err
    assert run_command(["relay", "purge", str(relay), "--apply", "--before", str(place(3))]) == 0
    assert [segment.number for segment in list_segments(relay, "s")] == [2, 3, 4, 5, 6]
    assert run_command(["relay", "purge", str(relay), "--apply", "--keep", "1h"]) == 0
    assert len(list_segments(relay, "s")) == 5, "all of it came just now"


def test_a_relay_whose_needs_are_unknown_is_purged_only_with_force(relay: Path, task: Path, capsys: Output) -> None:
    assert run_command(["relay", "purge", str(relay), "--apply"]) == 5
    assert "[relay-needs-unknown]" in capsys.readouterr().err
    assert run_command(["relay", "purge", str(relay), "--apply", "--force"]) == 2
    TaskNeed(relay, "s", "shop").move(place(7))
    assert run_command(["relay", "purge", str(task), "--apply"]) == 5
    shown = capsys.readouterr().err
    assert "[checkpoint-unknown] the target of task shop does not answer" in shown
    assert "--force" in shown
    assert len(list_segments(relay, "s")) == 6
    assert run_command(["relay", "purge", str(task), "--apply", "--force"]) == 0
    assert [segment.number for segment in list_segments(relay, "s")] == [4, 5, 6]


def test_the_checkpoint_counts_for_more_than_the_recorded_need(
    relay: Path, task: Path, mariadb: Server, run_sql: RunSql, capsys: Output
) -> None:
    task.write_text(TASK.format(host=mariadb.host, port=mariadb.port).replace("shop", "relay_shop"))
    TaskNeed(relay, "s", "relay_shop").move(place(3))
    with closing(MySqlTarget(mariadb.host, mariadb.port, "root", "").connect()) as session:
        session.meta.prepare()
        start = Checkpoint(task="relay_shop", source="s", worker=0, lsn=place(9), position="bin.000001:1111")
        session.meta.checkpoints.claim("relay_shop", "s", 1, start)
    try:
        assert run_command(["relay", "list", str(task)]) == 0
        assert (
            f"task relay_shop: applied up to {place(9)} (bin.000001:1111), needs the log after"
            in capsys.readouterr().out
        )
        assert run_command(["relay", "purge", str(task), "--apply"]) == 0
        assert [segment.number for segment in list_segments(relay, "s")] == [5, 6]
    finally:
        run_sql(mariadb, "DELETE FROM pidts_meta.checkpoint WHERE task = 'relay_shop'")


def test_a_task_is_forgotten_by_its_file_or_its_name(relay: Path, task: Path, capsys: Output) -> None:
    for command in (["relay", "forget", str(task)], ["relay", "forget", str(relay), "--task", "shop"]):
        TaskNeed(relay, "s", "shop").move(place(7))
        assert run_command(command) == 0
        assert list((relay / "s" / "needs").glob("*.json")) == []
        assert run_command(command) == 2
    assert run_command(["relay", "forget", str(relay)]) == 2
    assert "Add --task NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["relay"], "[usage]"),
        (["relay", "list", "absent.yaml"], "[unreadable-file]"),
        (["relay", "list", "."], "[no-relay]"),
        (["relay", "purge", ".", "--before", "yesterday"], "not an Lsn"),
        (["relay", "purge", ".", "--keep", "soon"], "'soon' is not a length of time"),
    ],
)
def test_a_wrong_command_line(
    arguments: list[str], said: str, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_lag_that_takes_long_to_find_is_not_known(task: Path) -> None:
    config = load_task(task)
    assert (lag_after(config, place(0)) or 0.0) > 0.0
    assert lag_after(config, place(0), seconds=-1.0) is None
