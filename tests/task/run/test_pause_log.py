"""The log of a run has one line for each cause of a pause."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from pidts.apply import Retry
from pidts.model import Transient
from pidts.task.run.attempt.pause_log import PauseLog

REFUSED = Transient("target-unreachable", "target h:1: Connection refused")
TIMED_OUT = Transient("target-unreachable", "target h:1: timed out")
FULL = Transient("target-full", "the target has no space")


def given_up(error: Transient, attempts: int) -> Transient:
    """Returns the error of a commit after this number of attempts."""

    def attempt() -> None:
        raise error

    def with_number(last: Transient, number: int) -> Transient:
        return Transient(last.code, f"{last.what} ({number} attempts)")

    with pytest.raises(Transient) as raised:
        Retry(attempts=attempts).repeat(attempt, drop=list, sleep=lambda _: None, given_up=with_number)
    return raised.value


def logged(*errors: Transient, has_progressed: bool = False) -> list[str]:
    log = PauseLog("s")
    with capture_logs() as lines:
        for error in errors:
            log.paused(error, 1.0, has_progressed=has_progressed)
    return [line["cause"] for line in lines]


def test_a_cause_is_logged_once() -> None:
    assert logged(REFUSED, REFUSED, Transient(REFUSED.code, REFUSED.what)) == [str(REFUSED)]


def test_another_cause_of_an_unreachable_target_is_logged() -> None:
    assert logged(REFUSED, TIMED_OUT, TIMED_OUT, REFUSED) == [str(REFUSED), str(TIMED_OUT), str(REFUSED)]


@pytest.mark.parametrize("error", [REFUSED, FULL])
def test_another_number_of_attempts_is_no_other_cause(error: Transient) -> None:
    after_seven = given_up(error, 7)
    assert "(7 attempts)" in str(after_seven)
    assert logged(after_seven, given_up(error, 8), error) == [str(after_seven)]


def test_after_a_committed_batch_the_same_cause_is_logged_again() -> None:
    assert logged(FULL, FULL, has_progressed=True) == [str(FULL), str(FULL)]
