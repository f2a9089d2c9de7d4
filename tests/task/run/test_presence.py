"""While a run lasts, the target shows it: a cutover on another machine sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest

from pidts.apply import Target
from pidts.login import Mode, Tls
from pidts.model import PidtsError
from pidts.sandbox import Server
from pidts.target import MySqlTarget, PostgresTarget
from pidts.task.operate.presence import cutover_session, is_being_cut_over, is_present, show_cutover, show_presence
from pidts.task.run.cutover_under_way import CutoverWatch


def ends_in_time(is_seen: Callable[[], bool]) -> bool:
    """Returns whether `is_seen` becomes false.

    Waits for this, since a server may notice late that a session was closed.
    """
    deadline = time.monotonic() + 60
    while is_seen() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not is_seen()


@pytest.fixture(params=["postgres", "mariadb", "mysql97", "mysql56"])
def target(request: pytest.FixtureRequest) -> Target:
    server: Server = request.getfixturevalue(request.param)
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return PostgresTarget(**login) if request.param == "postgres" else MySqlTarget(**login, tls=Tls(Mode.DISABLED))


def test_a_run_is_seen_while_its_session_lives(target: Target) -> None:
    with closing(target.connect()) as looking:
        with closing(target.connect()) as run, closing(target.connect()) as second:
            show_presence(run, "t", "one")
            show_presence(second, "t", "one")  # A second run can show itself at the same time.
            assert is_present(looking, "t", "one")
            assert not is_present(looking, "t", "two")
            assert not is_present(looking, "u", "one")
        assert ends_in_time(lambda: is_present(looking, "t", "one"))


def test_a_cutover_is_seen_while_its_session_lives(target: Target) -> None:
    with closing(target.connect()) as looking:
        with closing(target.connect()) as session:
            show_cutover(session, "t")
            assert is_being_cut_over(looking, "t")
            assert not is_being_cut_over(looking, "u")
            assert not is_present(looking, "t", "")
            assert not show_cutover(looking, "t"), "another session shows it"
            assert show_cutover(looking, "u")
        assert ends_in_time(lambda: is_being_cut_over(looking, "t"))


def test_the_session_of_a_cutover_can_be_found_and_ended(target: Target) -> None:
    with closing(target.connect()) as looking:
        assert cutover_session(looking, "t") is None
        dead = target.connect()
        assert show_cutover(dead, "t")
        found = cutover_session(looking, "t")
        assert found is not None
        assert found.client.startswith(("127.0.0.1", "localhost"))
        assert str(found) == f"session {found.number} on the target, from {found.client}"
        looking.execute(found.end)
        assert ends_in_time(lambda: is_being_cut_over(looking, "t"))
        with suppress(PidtsError):
            dead.close()
        assert show_cutover(looking, "t")


def test_a_run_shows_itself_by_the_session_that_watches_for_a_cutover(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.task.run.cutover_under_way._LOOK_SECONDS", 0.0)
    config = SimpleNamespace(name="watched", source=SimpleNamespace(source_id="one"))
    with closing(target.connect()) as looking, closing(CutoverWatch(config, target)) as watch:  # type: ignore[arg-type]
        looking.meta.prepare()
        assert not watch.forbids_run()
        assert is_present(looking, "watched", "one")
        watch.close()
        assert ends_in_time(lambda: is_present(looking, "watched", "one"))
