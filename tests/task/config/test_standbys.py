"""The standbys of a source are read from the task file. The right server is read, and only a server that has all
transactions may take over.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.cli.app import run_command
from pidts.model import ConfigError, parse_gtid_set
from pidts.task.config.current_server import address_of, choose_server
from pidts.task.config.diff import difference
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.operate.standbys import ServerTransactions, misfit, written

FILE = """\
name: c
task-mode: all
target-database: {type: mysql, host: t, user: u}
mysql-instances:
  - source-id: one
    enable-gtid: true
    from: {host: a, user: u, password: secret}
    standbys: [{host: b}, {host: c, port: 3307, user: v, password: other}]
"""


def _loaded(tmp_path: Path, text: str = FILE) -> TaskConfig:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return load_task(path, {})


def test_settings_that_a_standby_lacks_are_those_of_from(tmp_path: Path) -> None:
    source = _loaded(tmp_path).source
    assert [(one.host, one.port, one.user, one.password) for one in source.servers] == [
        ("a", 3306, "u", "secret"),
        ("b", 3306, "u", "secret"),
        ("c", 3307, "v", "other"),
    ]
    assert source.server.host == "a"
    assert source.failover_after == 3


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("{host: b}", "{host: a}", "duplicate-key"),
        ("{host: b}", "{port: 1}", "missing-key"),
    ],
)
def test_standbys_that_are_refused(tmp_path: Path, before: str, after: str, code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _loaded(tmp_path, FILE.replace(before, after))
    assert refused.value.code == code
    assert refused.value.where.line > 0


def test_the_chosen_server_is_read_by_all_that_follow(tmp_path: Path) -> None:
    config = _loaded(tmp_path)
    chosen = choose_server(config.source, config.relay, "c:3307")
    later = _loaded(tmp_path)
    assert later.source == chosen
    assert address_of(later.source.server) == "c:3307"
    assert [one.host for one in later.source.standbys] == ["a", "b"]
    back = choose_server(later.source, later.relay, "a:3306")
    assert back == config.source
    assert difference(config, _loaded(tmp_path)).waiting == ()


def test_a_choice_that_the_file_does_not_have_is_void(tmp_path: Path) -> None:
    config = _loaded(tmp_path)
    choose_server(config.source, config.relay, "b:3306")
    assert _loaded(tmp_path, FILE.replace("{host: b}", "{host: d}")).source.server.host == "a"
    (config.relay / "one" / "server.json").write_text("{")
    assert _loaded(tmp_path).source.server.host == "a"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (FILE, ["--to", "d:1"], "d:1 is not a server of the source"),
        (FILE, ["--to", "a:3306"], "a:3306 is already the server that is read"),
        (FILE[: FILE.index("    standbys")], [], "the source has no standbys"),
    ],
)
def test_a_failover_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: list[str], said: str
) -> None:
    config = _loaded(tmp_path, text)
    assert run_command(["failover", str(config.path), *options]) == ConfigError.exit_code
    assert said in capsys.readouterr().err


def _mariadb(state: str) -> ServerTransactions:
    return ServerTransactions(parse_gtid_set(state, mariadb=True), written(state))


def _mysql(executed: str) -> ServerTransactions:
    return ServerTransactions(parse_gtid_set(executed, mariadb=False), None)


A, B = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"


@pytest.mark.parametrize(
    ("state", "received", "fits"),
    [
        (_mysql(f"{A}:1-5,{B}:1-9"), f"{A}:1-5", True),
        (_mysql(f"{A}:1-4,{B}:1-9"), f"{A}:1-5", False),
        (_mariadb("0-1-5,0-2-9"), "0-1-5", True),
        # This standby's position is later, but it has never had the fifth transaction of server 1.
        (_mariadb("0-1-4,0-2-9"), "0-1-5", False),
        (_mariadb("0-1-5"), "0-1-5,1-1-3", False),
        (_mysql(f"{A}:1-5"), "0-1-5", False),
        (_mariadb("0-1-5"), f"{A}:1-5", False),
    ],
)
def test_only_a_server_that_has_all_that_was_received_may_take_over(
    state: ServerTransactions, received: str, fits: bool
) -> None:
    reason = misfit(state, parse_gtid_set(received))
    assert (reason == "") is fits
    if not fits and type(state.executed) is type(parse_gtid_set(received)):
        assert received in reason
        assert str(state) in reason


def test_no_server_without_gtids_may_be_a_standby() -> None:
    assert misfit(
        ServerTransactions(parse_gtid_set("", mariadb=False), None, gtid_mode=False), parse_gtid_set(f"{A}:1")
    )
    assert misfit(_mysql(f"{A}:1"), None)


states = st.dictionaries(st.tuples(st.integers(0, 2), st.integers(1, 3)), st.integers(1, 9))


@given(states, states)
def test_an_excess_is_seen_on_every_stream(mine: dict[tuple[int, int], int], other: dict[tuple[int, int], int]) -> None:
    def state(of: dict[tuple[int, int], int]) -> ServerTransactions:
        return _mariadb(",".join(f"{domain}-{server}-{last}" for (domain, server), last in of.items()))

    assert state(mine).has_all_of(state(other)) is all(mine.get(key, 0) >= last for key, last in other.items())
