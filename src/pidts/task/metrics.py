"""A picture of a running task as Prometheus metrics.

A series is made only of what a task has few of: its sources, tables that halt or are being copied just now, shards that
are awaited. A task of ten thousand tables has no more of them than one of ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pidts.plan import Phase
from pidts.task.locks import awaited_since
from pidts.task.orders import Standing
from pidts.task.progress import Progress, TableProgress

Labels = tuple[str, ...]


def metric_families(progress: Progress) -> list[Metric]:
    """All that there are, each with its series of this moment; times are seconds since 1970.

    A time is 0 where nobody knows it: whoever waits since then is told rather too early than never.
    """
    task, sources = progress.task, progress.sources
    awaited = awaited_since(
        Standing(halt.lsn, halt.statement, halt, source=one.source) for one in sources for halt in one.halted
    )
    known = [one for one in sources if one.lag_seconds is not None]
    copying = {(task, *_named(progress, table)): table for table in progress.tables if _is_under_way(table)}
    return [
        _gauge(
            "pidts_stage",
            "What a task does with a source: the one that it is in has the value 1.",
            ("task", "source", "stage"),
            {(task, one.source, one.stage): 1 for one in sources},
        ),
        _gauge(
            "pidts_lag_seconds",
            "How far the target is behind a source.",
            ("task", "source"),
            {(task, one.source): one.lag_seconds or 0.0 for one in known},
        ),
        _counter(
            "pidts_rows",
            "Rows that this run has brought, by what became of them on the source.",
            ("task", "kind"),
            {(task, kind): count for kind, count in progress.rows.items()},
        ),
        _counter("pidts_batches", "Batches that this run has committed.", ("task",), {(task,): progress.batches}),
        _gauge(
            "pidts_copy_tables",
            "Tables by how far the copy of their existing rows is: waiting, copying or done.",
            ("task", "source", "state"),
            _states(progress),
        ),
        _gauge(
            "pidts_copied_rows",
            "Rows copied of a table whose copy is under way.",
            ("task", "source", "table"),
            {place: table.copied for place, table in copying.items()},
        ),
        _gauge(
            "pidts_copy_estimate_rows",
            "Rows in all of a table whose copy is under way, as the source guesses.",
            ("task", "source", "table"),
            {place: table.estimate for place, table in copying.items() if table.estimate},
        ),
        _gauge(
            "pidts_halted_since_seconds",
            "When a table came to stand still, and the code that says why; the table * is all of a source.",
            ("task", "source", "table", "code"),
            _halted(progress),
        ),
        _gauge(
            "pidts_shard_awaited_since_seconds",
            "Since when other shards of the same table wait for this one to make its schema change.",
            ("task", "shard"),
            {(task, shard): since for shard, since in awaited.items()},
        ),
    ]


def _halted(progress: Progress) -> dict[Labels, float]:
    """A table that halts twice for one reason has done so since the first time."""
    found: dict[Labels, float] = {}
    for one in progress.sources:
        for halt in one.halted:
            for name in [*map(str, halt.tables)] or ["*"]:
                place = (progress.task, one.source, name, halt.code)
                found[place] = min(filter(None, (found.get(place), halt.since)), default=0.0)
    return found


def _states(progress: Progress) -> dict[Labels, float]:
    found: dict[Labels, float] = {}
    for table in progress.tables:
        state = "done" if table.done else "copying" if _is_under_way(table) else "waiting"
        place = (progress.task, _named(progress, table)[0], state)
        found[place] = found.get(place, 0) + 1
    return found


def _is_under_way(table: TableProgress) -> bool:
    return not table.done and (table.copied > 0 or table.phase is not Phase.ROWS)


def _named(progress: Progress, table: TableProgress) -> tuple[str, str]:
    """Whose table it is goes without saying where there is one source."""
    return table.source or next((one.source for one in progress.sources), ""), table.name


def _gauge(name: str, says: str, labels: Iterable[str], values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, says, labels=list(labels))
    for place, value in values.items():
        family.add_metric(place, value)
    return family


def _counter(name: str, says: str, labels: Iterable[str], values: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, says, labels=list(labels))
    for place, value in values.items():
        family.add_metric(place, value)
    return family
