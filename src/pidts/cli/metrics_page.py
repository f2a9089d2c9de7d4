"""`pidts run --metrics`: serves a page that Prometheus reads while the task runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidts.model import ConfigError
from pidts.task.operate.metrics import metric_families
from pidts.task.operate.progress import Progress

_LOOPBACK = "127.0.0.1"


class LatestSnapshot(Collector):
    """Keeps the latest snapshot of a task for Prometheus."""

    def __init__(self) -> None:
        self._snapshot: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Stores a new snapshot. Any thread may call this."""
        self._snapshot = progress

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the latest snapshot; none before the first one."""
        if self._snapshot is not None:
            yield from metric_families(self._snapshot)


@contextmanager
def metrics_page(address: str) -> Iterator[LatestSnapshot]:
    """Serves metrics at `[HOST:]PORT` in the block; without a host, only for this machine. Port 0: any free port."""
    host, port = _parsed(address)
    latest = LatestSnapshot()
    registry = CollectorRegistry()
    registry.register(latest)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:  # a host name with an empty label cannot be encoded
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            "metrics-address",
            f"the metrics cannot be served at {address}: {why}",
            todo="Give another port, or 0 for any free port",
        ) from None
    try:
        named = f"[{host}]" if ":" in host else host
        print(f"note: metrics at http://{named}:{server.server_port}/metrics", file=sys.stderr, flush=True)
        yield latest
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536):
        todo = "Write PORT or HOST:PORT, such as 9300 or 0.0.0.0:9300"
        raise ConfigError(
            "metrics-address", f"metrics cannot be served at {address!r}, which is not PORT or HOST:PORT", todo=todo
        )
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)
