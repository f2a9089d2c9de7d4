"""`pidts zones return` is killed at each step on real servers, and the same command then continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.crashes import ProcessDied
from tests.task.zones.returning_pair import Pair

from pidts.cli.app import run_command
from pidts.cli.zones import zone_return as command
from pidts.target.mysql import MySqlSession
from pidts.task.zones import zone_return_servers


class Points:
    """Kills the command at one of its points, and records their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.kills_at = -1
        for place, name in (
            (MySqlSession, "commit"),
            (zone_return_servers, "forget_need"),
            (zone_return_servers, "empty_relay"),
            (command, "_copy"),
        ):
            monkeypatch.setattr(place, name, self._around(name, getattr(place, name)))

    def _around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            self._at(f"before {name}")
            found = work(*arguments)
            self._at(f"behind {name}")
            return found

        return wrapped

    def _at(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) - 1 == self.kills_at:
            raise ProcessDied(name)

    def run(self, words: Sequence[str], kills_at: int = -1) -> int | None:
        """Returns the exit code of a command, and None if it was killed."""
        self.seen, self.kills_at = [], kills_at
        try:
            return run_command(words)
        except ProcessDied:
            return None
        finally:
            self.kills_at = -1


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    return Points(monkeypatch)


def returns(pair: Pair, points: Points, kills_at: int) -> bool:
    """Lets zone b return with a command that is killed, and then with the same command. Returns False if it was not
    killed.
    """
    words = ["zones", "return", str(pair.file), "b", "--yes", "--discard-unsent"]
    pair.differ()
    pair.write_file(joins=True)
    code = points.run(words, kills_at)
    is_killed = code is None
    assert is_killed or code == 0
    if is_killed:
        point = points.seen[-1]
        assert points.run(words) == 0, f"killed {point}, the command does not go on"
    pair.write_file(joins=False)
    pair.demand_returned()
    return is_killed


@pytest.mark.timeout(600)
def test_a_return_that_is_killed_before_it_comes_to_a_relay_continues(pair: Pair, points: Points) -> None:
    """The records of the task that fills the zone are gone then. Its relay still shows the zone's last place."""
    assert not returns(pair, points, -1)
    last = max(place for place, name in enumerate(points.seen) if name == "before forget_need")
    assert returns(pair, points, last)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_return_may_be_killed_at_each_step(pair: Pair, points: Points) -> None:
    kills_at = 0
    while returns(pair, points, kills_at):
        kills_at += 1
    assert kills_at > 15
