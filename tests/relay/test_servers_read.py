"""The addresses of the servers whose logs are in a relay, and the ends of their logs, outlast their segments."""

from __future__ import annotations

from pathlib import Path

from pidts.model import Position
from pidts.relay.servers_read import EndedLog, add_server, ended_log, servers_read

FIRST = EndedLog("mysql 5f6c at db1", Position("my bin.000007", 158))


def test_the_last_line_about_a_part_is_valid(tmp_path: Path) -> None:
    add_server(tmp_path, 0, "a:3306")
    assert ended_log(tmp_path, 0) is None
    add_server(tmp_path, 1, "b:3306", EndedLog("other", Position("bin.000001", 4)))
    add_server(tmp_path, 1, "c:3306", FIRST)
    assert servers_read(tmp_path) == {0: "a:3306", 1: "c:3306"}
    assert ended_log(tmp_path, 0) == FIRST
    assert ended_log(tmp_path, 1) is None


def test_a_line_that_a_crash_has_cut_off_is_ignored(tmp_path: Path) -> None:
    add_server(tmp_path, 1, "b:3306", FIRST)
    with (tmp_path / "servers").open("a") as file:
        file.write("ended 0 my bin.0000")
    assert ended_log(tmp_path, 0) == FIRST


def test_a_relay_of_an_earlier_version_has_no_ends(tmp_path: Path) -> None:
    assert ended_log(tmp_path, 0) is None
    (tmp_path / "servers").write_text("0 a:3306\n1 b:3306\n")
    assert servers_read(tmp_path) == {0: "a:3306", 1: "b:3306"}
    assert ended_log(tmp_path, 0) is None
