"""The progress of a task becomes metrics with the right series, and names with special characters do not break the
page.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pidts.model import Halt, Lsn, TableName, Transient
from pidts.plan import Phase
from pidts.replicate import ReceiveProblem
from pidts.task.operate.metrics import metric_families
from pidts.task.operate.progress import Progress, SourceProgress, TableProgress

AT = Lsn(0, 3, 42)


class Page(Collector):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> list[Metric]:
        return metric_families(self._progress)


def series(progress: Progress, name: str) -> dict[tuple[str, ...], float]:
    """Returns one metric as a scraper reads it: its labels except the task, in the order of their names, and its
    values.
    """
    registry = CollectorRegistry()
    registry.register(Page(progress))
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name == name:
                assert sample.labels.pop("task") == progress.task
                place = tuple(sample.labels[label] for label in sorted(sample.labels))
                assert place not in found, "a scraper refuses what is there twice"
                found[place] = sample.value
    return found


def halt(table: str, code: str = "target-refused", *awaits: str, since: float = 100.0, **more: Any) -> Halt:
    names = (TableName("shop", table),) if table else ()
    return Halt(tables=names, lsn=AT, code=code, what="no", awaits=awaits, since=since, **more)


def progress(*halted: Halt, **more: Any) -> Progress:
    north = SourceProgress(source="north", stage="sync", lag_seconds=0.25, halted=halted)
    return Progress(task="shop", sources=(north,), **more)


def test_stage_and_lag_are_those_of_each_source() -> None:
    shown = progress()
    south = SourceProgress(source="south", stage="paused")
    shown = replace(shown, sources=(*shown.sources, south))
    assert series(shown, "pidts_stage") == {("north", "sync"): 1, ("south", "paused"): 1}
    assert series(shown, "pidts_lag_seconds") == {("north",): 0.25}, "what nobody knows is not shown as 0"


def test_the_oldest_waiting_change_has_a_series_even_if_there_is_none() -> None:
    south = SourceProgress(source="south", stage="sync", lag_seconds=0.0, held_lag_seconds=180.5, held_tables=2)
    shown = replace(progress(), sources=(*progress().sources, south))
    assert series(shown, "pidts_held_lag_seconds") == {("north",): 0, ("south",): 180.5}
    assert series(shown, "pidts_lag_seconds") == {("north",): 0.25, ("south",): 0.0}


def test_applied_rows_are_counted() -> None:
    rows = {"inserted": 1, "updated": 2, "deleted": 3, "copied": 45_000, "stale": 0}
    shown = progress(rows=rows, batches=9)
    assert series(shown, "pidts_rows_total") == {(name,): count for name, count in rows.items()}
    assert series(shown, "pidts_batches_total") == {(): 9}


def test_only_tables_that_are_being_copied_have_series_of_their_own() -> None:
    tables = [
        *(TableProgress(name=f"shop.later_{number}", estimate=7) for number in range(2000)),
        *(TableProgress(name=f"shop.done_{number}", copied=7, done=True) for number in range(3000)),
        TableProgress(name="shop.now", copied=500, estimate=1000),
        TableProgress(name="shop.unknown", copied=5),
        TableProgress(name="shop.ends", phase=Phase.FINISH),
    ]
    shown = progress(tables=tuple(tables))
    copied = {("north", "shop.now"): 500, ("north", "shop.unknown"): 5, ("north", "shop.ends"): 0}
    assert series(shown, "pidts_copied_rows") == copied
    assert series(shown, "pidts_copy_estimate_rows") == {("north", "shop.now"): 1000}
    states = {("north", "waiting"): 2000, ("north", "copying"): 3, ("north", "done"): 3000}
    assert series(shown, "pidts_copy_tables") == states
    beside = replace(shown, tables=(TableProgress(name="a.b", copied=1, source="south"),))
    assert series(beside, "pidts_copied_rows") == {("south", "a.b"): 1}


def test_a_stalled_table_has_its_code_and_the_time() -> None:
    shown = progress(halt("a"), halt("b", since=50.0), halt("b", since=40.0), halt("", "other", since=0.0))
    assert series(shown, "pidts_halted_since_seconds") == {
        ("target-refused", "north", "shop.a"): 100,
        ("target-refused", "north", "shop.b"): 40,
        ("other", "north", "*"): 0,
    }


def test_each_awaited_shard_has_the_time_since_which_others_wait_for_it() -> None:
    shown = progress(
        halt("t_1", "shard-awaits", "north: shop.t_2", "south: shop.t_1", "south: shop.t_2"),
        halt("t_3", "shard-awaits", "south: shop.t_2", since=90.0),
        halt("b", "ddl-awaits-tables", "north: shop.c"),
    )
    south = SourceProgress(
        source="south", stage="sync", halted=(halt("t_1", "shards-disagree", "north: shop.t_1", since=0.0),)
    )
    shown = replace(shown, sources=(*shown.sources, south))
    found = series(shown, "pidts_shard_awaited_since_seconds")
    assert found == {("north: shop.t_2",): 100, ("south: shop.t_2",): 90}, "who has come is awaited no more"
    unknown = progress(halt("t_1", "shard-awaits", "south: *", since=0.0))
    assert series(unknown, "pidts_shard_awaited_since_seconds") == {("south: *",): 0}


def test_no_name_breaks_the_page() -> None:
    hostile = 'a"} 1\nfake{x="\\é🐚'
    shown = Progress(
        task=hostile,
        sources=(SourceProgress(source=hostile, stage="copy", halted=(halt(hostile, hostile, since=7.0),)),),
        tables=(TableProgress(name=hostile, copied=3),),
    )
    assert series(shown, "pidts_copied_rows") == {(hostile, hostile): 3}
    assert series(shown, "pidts_halted_since_seconds") == {(hostile, hostile, f"shop.{hostile}"): 7}
    assert series(shown, "fake") == {}


def test_a_task_that_has_not_begun_shows_nothing_of_its_sources() -> None:
    shown = Progress(task="shop")
    assert series(shown, "pidts_stage") == {}
    assert series(shown, "pidts_batches_total") == {(): 0}


def test_a_source_whose_log_does_not_come_in_has_a_series() -> None:
    lack = ReceiveProblem(Transient("relay-full", "no room"), since=100.0, heard_at=200.0)
    shown = progress()
    south = SourceProgress(source="south", stage="paused", lack=lack)
    shown = replace(shown, sources=(*shown.sources, south))
    assert series(shown, "pidts_not_receiving_since_seconds") == {("relay-full", "south"): 100.0}
