"""The progress of a running task as Prometheus metrics.

Only sources, halted tables, tables that are being copied, tables with locked rows and awaited shards have series of
their own. So a task of ten thousand tables usually has no more series than a task of ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pidts.plan import Phase
from pidts.task.operate.ddl_commands import BlockedChange
from pidts.task.operate.progress import Progress, TableProgress
from pidts.task.operate.shard_locks import awaited_since

Labels = tuple[str, ...]


def metric_families(progress: Progress) -> list[Metric]:
    """Returns all metrics with their current series; times are seconds since 1970.

    An unknown time is 0, the year 1970. So an alert about the age of this time comes too early instead of never.
    """
    task, sources = progress.task, progress.sources
    awaited = awaited_since(
        BlockedChange(halt.lsn, halt.statement, halt, source=one.source) for one in sources for halt in one.halted
    )
    catalog_lags = [one.catalog_lag_seconds for one in sources if one.catalog_lag_seconds is not None]
    known = [one for one in sources if one.lag_seconds is not None]
    stages = [(one, stage) for one in sources if one.stage_report is not None for stage in one.stage_report.stages]
    copying = {(task, *_source_and_name(progress, table)): table for table in progress.tables if _is_copying(table)}
    return [
        _gauge(
            "pidts_stage",
            "What a task does with a source: the current stage has the value 1.",
            ("task", "source", "stage"),
            {(task, one.source, one.stage): 1 for one in sources},
        ),
        _gauge(
            "pidts_lag_seconds",
            "How many seconds the target is behind a source, without waiting tables.",
            ("task", "source"),
            {(task, one.source): one.lag_seconds or 0.0 for one in known},
        ),
        _gauge(
            "pidts_held_lag_seconds",
            "The age in seconds of the oldest change of a waiting table; 0 if no change waits with its table.",
            ("task", "source"),
            {(task, one.source): one.held_lag_seconds or 0.0 for one in sources},
        ),
        _gauge(
            "pidts_catalog_lag_seconds",
            "How many seconds the catalog of a server is behind the warehouse that is published there.",
            ("task",),
            {(task,): max(catalog_lags)} if catalog_lags else {},
        ),
        _gauge(
            "pidts_stage_busy",
            "The share of time in which a stage was at work: relay, plan, apply or target.",
            ("task", "source", "stage"),
            {(task, one.source, stage.name): stage.busy for one, stage in stages if stage.busy is not None},
        ),
        _gauge(
            "pidts_stage_lag_seconds",
            "The seconds of the lag that arise between source and relay, and those between relay and target.",
            ("task", "source", "stage"),
            {
                (task, one.source, stage.name): stage.lag_seconds
                for one, stage in stages
                if stage.lag_seconds is not None
            },
        ),
        _gauge(
            "pidts_slow_stage",
            "1 for the slow stage, which the other stages wait for. There is no value while the lag is small and the "
            "target answers.",
            ("task", "source", "stage"),
            {
                (task, one.source, one.stage_report.slow.name): 1
                for one in sources
                if one.stage_report is not None and one.stage_report.slow is not None
            },
        ),
        _gauge(
            "pidts_relay_bytes",
            "The size of a source's log in the relay.",
            ("task", "source"),
            {(task, one.source): one.relay_bytes for one in sources if one.relay_bytes is not None},
        ),
        _counter(
            "pidts_rows",
            "Rows that this run has applied or copied, by the kind of change.",
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
            "The source's estimate of the number of rows of a table whose copy is under way.",
            ("task", "source", "table"),
            {place: table.estimate for place, table in copying.items() if table.estimate},
        ),
        _gauge(
            "pidts_halted_since_seconds",
            "When a table halted, with the error code; the table * means all tables of a source.",
            ("task", "source", "table", "code"),
            _halted(progress),
        ),
        _gauge(
            "pidts_locked_rows",
            "Rows of a target table that differ from the source and are set aside.",
            ("task", "table"),
            {(task, table): count for table, count in progress.locked.items()},
        ),
        _gauge(
            "pidts_not_receiving_since_seconds",
            "Since when the relay does not receive a source's log, with the error code.",
            ("task", "source", "code"),
            {(task, one.source, one.lack.error.code): one.lack.since for one in sources if one.lack is not None},
        ),
        _gauge(
            "pidts_shard_awaited_since_seconds",
            "Since when other shards of the same table wait for this shard's schema change.",
            ("task", "shard"),
            {(task, shard): since for shard, since in awaited.items()},
        ),
    ]


def _halted(progress: Progress) -> dict[Labels, float]:
    """Returns the time of each table's halt. If a table has several halts with the same code, the earliest counts."""
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
        state = "done" if table.done else "copying" if _is_copying(table) else "waiting"
        place = (progress.task, _source_and_name(progress, table)[0], state)
        found[place] = found.get(place, 0) + 1
    return found


def _is_copying(table: TableProgress) -> bool:
    return not table.done and (table.copied > 0 or table.phase is not Phase.ROWS)


def _source_and_name(progress: Progress, table: TableProgress) -> tuple[str, str]:
    """Returns a table's source and name. The progress of a table names no source if the task has only one."""
    return table.source or next((one.source for one in progress.sources), ""), table.name


def _gauge(name: str, documentation: str, labels: Iterable[str], values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=list(labels))
    for place, value in values.items():
        family.add_metric(place, value)
    return family


def _counter(name: str, documentation: str, labels: Iterable[str], values: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=list(labels))
    for place, value in values.items():
        family.add_metric(place, value)
    return family
