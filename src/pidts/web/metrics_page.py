"""The metrics of all tasks on one page for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Reported = Iterable[tuple[str, bool, list[list[Any]]]]


class _TaskCollector(Collector):
    def __init__(self, tasks: Reported) -> None:
        self._tasks = tasks

    def collect(self) -> Iterator[Metric]:
        """Yields each metric once, with the values of all tasks, as the format demands."""
        up = GaugeMetricFamily("pidts_up", "Whether the process of a task lives.", labels=["task"])
        families: dict[str, Metric] = {}
        for task, is_alive, metrics in self._tasks:
            up.add_metric([task], float(is_alive))
            # If the process has ended, its last report is out of date.
            for name, documentation, kind, samples in metrics if is_alive else ():
                family = families.setdefault(name, Metric(name, documentation, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, labels, value)
        yield up
        yield from families.values()


def metrics_text(tasks: Reported) -> bytes:
    """Returns the page."""
    registry = CollectorRegistry()
    registry.register(_TaskCollector(list(tasks)))
    return generate_latest(registry)
