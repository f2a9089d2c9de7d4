"""The parts of a task share one session; the last part that gives it back ends it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.spark import session as module
from pidts.task.run.shared_spark import SharedSpark


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Makes each new session a plain object. Returns the list of the sessions that have been ended."""
    ended: list[object] = []
    monkeypatch.setattr(module, "build_session", lambda *_: object())
    monkeypatch.setattr(module, "end_session", ended.append)
    return ended


def shared(folder: Path) -> SharedSpark:
    config: Any = SimpleNamespace(name="t", spark_master="local", relay=folder, spark_conf={})
    return SharedSpark(config, folder)


def test_the_last_part_ends_it_and_the_next_use_begins_another(tmp_path: Path, ended: list[object]) -> None:
    spark = shared(tmp_path)
    first = spark.session("one")
    assert spark.session("two") is first
    spark.give_back("one")
    spark.give_back("one")
    assert ended == []
    spark.give_back("two")
    assert ended == [first]
    assert spark.session("one") is not first


def test_a_part_that_never_used_spark_does_not_end_it_for_others(tmp_path: Path, ended: list[object]) -> None:
    spark = shared(tmp_path)
    spark.give_back("one")
    spark.session("two")
    spark.give_back("one")
    assert ended == []


def test_a_jvm_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.2)
    killed: list[bool] = []
    monkeypatch.setattr(module, "forget_session", lambda: killed.append(True))
    answers = threading.Event()
    answers.set()
    session: Any = SimpleNamespace(stop=answers.wait)
    module.stop_session(session)
    assert killed == []
    answers.clear()
    module.stop_session(session)
    assert killed == [True]
    answers.set()
