"""One call of Spark's: the driver carries out small batches in it, and returns where the next one is to be a job."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.batch.context import JobContext
from pidts.batch.relevance import Meaning
from pidts.model import Checkpoint, Lsn, Transient
from pidts.plan import Limits, PlanState
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.source import SourceConfig
from pidts.spark import stream as module
from pidts.spark.slices import JobNote, SliceOptions, SliceReader
from pidts.spark.stream import TaskStream

MEANING = Meaning(AllowList(), Dialect())


def state(offset: int) -> PlanState:
    return PlanState(Lsn(0, 1, offset))


class Road(TaskStream):
    """Batches of which only the states are told; those that end at a place in `large` need a job."""

    def __init__(
        self,
        folder: Path,
        planned: Sequence[int],
        large: set[int] = frozenset(),  # type: ignore[assignment]
        spark: Callable[[], Any] = lambda: None,
    ) -> None:
        context = JobContext(
            task="t",
            source=SourceConfig("127.0.0.1", 1, source_id="s"),
            relay=folder,
            staging=folder / "staging",
            target=ValuesTarget("never asked"),
            workers=1,
            epoch=1,
            change_no=0,
            structures={},
            dialect=Dialect(),
            charsets={},
        )
        super().__init__(
            spark=spark,
            context=context,
            checkpoints=(Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4)),),
            meaning=MEANING,
            limits=Limits(),
            direct_rows=0,
            goal=None,
            scratch=folder,
            on_batch=lambda _: None,
        )
        self.done: list[tuple[int, str]] = []
        self._planner: Any = self
        self.planned, self.large = planned, large

    def next(self, at: PlanState) -> PlanState | None:
        """As the planner's: the first place behind what is done."""
        place = bisect_right(self.planned, at.lsn.offset)
        if place == len(self.planned):
            self._closing = True  # nothing more comes
            return None
        return state(self.planned[place])

    def _run(self, slices: Any, end: PlanState, planned: float) -> bool:
        assert planned > 0
        if slices is None and end.lsn.offset in self.large:
            return False
        self.done.append((end.lsn.offset, "driver" if slices is None else "job"))
        self._state = end
        return True

    def call(self, number: int) -> dict[str, Any]:
        """As Spark calls: the offset is in its log first."""
        offset = self.offset(number)
        self._batch("slices", number)  # type: ignore[arg-type]
        return offset

    def offset(self, number: int) -> dict[str, Any]:
        reader = object.__new__(SliceReader)
        reader._options = SliceOptions(self._context.relay, "s", MEANING, self._note)
        offset = reader.latestOffset({"number": number - 1}, None)  # type: ignore[arg-type]
        log = self._scratch / "query" / "offsets"
        log.mkdir(parents=True, exist_ok=True)
        (log / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        return offset


def test_small_batches_need_one_call(tmp_path: Path) -> None:
    road = Road(tmp_path, [10, 20, 30])
    assert road.call(1) == {"number": 1}
    assert road.done == [(10, "driver"), (20, "driver"), (30, "driver")]


def test_a_job_is_the_next_call_and_only_that_one(tmp_path: Path) -> None:
    road = Road(tmp_path, [10, 20, 30, 40], {20, 40})
    road.call(1)
    assert road.done == [(10, "driver")]
    offset = road.call(2)
    note = JobNote.of(offset)
    assert note is not None
    assert (note.before, note.after) == (state(10), state(20))
    assert road.done == [(10, "driver"), (20, "job"), (30, "driver")]
    assert JobNote.of(road.call(3)).after == state(40)  # type: ignore[union-attr]
    assert road.done[-1] == (40, "job")
    road._closing = False
    assert road.call(4) == {"number": 4}
    assert len(road.done) == 4, "a job that is done is not noted again"


def test_a_call_ends_behind_a_batch_where_the_run_does(tmp_path: Path) -> None:
    road = Road(tmp_path, range(10, 100_000_000))
    threading.Timer(0.1, road.close).start()
    road.call(1)
    assert road.state == state(road.done[-1][0])


def test_a_call_returns_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CALL_SECONDS", 0.1)
    road = Road(tmp_path, range(10, 100_000_000))
    road.call(1)
    done = len(road.done)
    road.call(2)
    assert len(road.done) > done > 0
    assert [place for place, _ in road.done] == list(range(10, 10 + len(road.done)))


def test_a_batch_that_fails_ends_the_call_and_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    road = Road(tmp_path, [10, 20])
    run = road._run

    def fails(slices: Any, end: PlanState, planned: float) -> bool:
        if end == state(20):
            raise ValueError("the second one")
        return run(slices, end, planned)

    monkeypatch.setattr(road, "_run", fails)
    with pytest.raises(ValueError, match="the second"):
        road.call(1)
    assert isinstance(road._failure, ValueError)
    assert road.done == [(10, "driver")]
    road.call(2)  # Spark may call once more before the query is ended
    assert road.done == [(10, "driver")]


def wait(claim: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def ended(thread: threading.Thread) -> bool:
    thread.join(10)
    return not thread.is_alive()


def test_small_batches_do_not_wait_for_spark(tmp_path: Path) -> None:
    starts, asked = threading.Event(), threading.Event()

    def spark() -> None:
        asked.set()
        assert starts.wait(10)

    road = Road(tmp_path, [10, 20, 30], spark=spark)
    road.start()
    assert asked.wait(10)
    wait(lambda: road._closing, "the last batch")
    assert road.done == [(10, "driver"), (20, "driver"), (30, "driver")]
    starts.set()
    assert ended(road._starting)
    assert road._query is None, "the run is to end"
    assert road.failure() is None


def test_before_spark_a_job_is_noted_for_its_first_call(tmp_path: Path) -> None:
    road = Road(tmp_path, [10, 20, 30], {20})
    road._go_ahead()
    assert road.done == [(10, "driver")]
    assert road.awaits_spark
    assert JobNote.of(road.call(1)).after == state(20)  # type: ignore[union-attr]
    assert road.done == [(10, "driver"), (20, "job"), (30, "driver")]
    assert not road.awaits_spark


def test_a_job_that_a_call_has_not_heard_of_is_no_later_calls(tmp_path: Path) -> None:
    """It is noted when Spark has asked already; behind that it is small, since another shard holds some tables."""
    road = Road(tmp_path, [10, 20, 30], {20})
    assert road.offset(1) == {"number": 1}
    road._go_ahead()
    road.large = set()
    road._batch("slices", 1)  # type: ignore[arg-type]
    road._closing = False
    road.call(2)
    assert road.done == [(10, "driver"), (20, "driver"), (30, "driver")]


def test_a_job_from_another_state_is_not_done(tmp_path: Path) -> None:
    road = Road(tmp_path, [10, 20, 30], {20})
    road.call(1)
    road._state = state(25)
    road.call(2)
    assert road.done == [(10, "driver"), (30, "driver")]


def test_sparks_first_call_takes_over(tmp_path: Path) -> None:
    road = Road(tmp_path, range(10, 100_000_000))
    ahead = threading.Thread(target=road._go_ahead)
    ahead.start()
    wait(lambda: road.done, "the first batch")
    threading.Timer(0.2, road.close).start()
    road.call(1)
    assert ended(ahead)
    assert [place for place, _ in road.done] == list(range(10, 10 + len(road.done))), "each once, in order"


def test_that_spark_does_not_start_ends_the_run(tmp_path: Path) -> None:
    def spark() -> None:
        raise Transient("spark-died", "while it was starting")

    road = Road(tmp_path, [], spark=spark)
    road.start()
    assert ended(road._starting)
    failure = road.failure()
    assert isinstance(failure, Transient)
    assert failure.code == "spark-died"


def test_what_fails_before_spark_is_there_ends_the_run(tmp_path: Path) -> None:
    class Broken(Road):
        def _run(self, slices: Any, end: PlanState, planned: float) -> bool:
            raise ValueError("the first one")

    road = Broken(tmp_path, [10])
    road._go_ahead()
    assert isinstance(road._failure, ValueError)
    assert not road._busy.locked()
