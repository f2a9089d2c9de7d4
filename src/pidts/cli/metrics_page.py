"""`pidts run --metrics`: a page that Prometheus reads while the task runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pidts.model import ConfigError
from pidts.task.metrics import metric_families
from pidts.task.progress import Progress

_LOOPBACK = "127.0.0.1"


class Latest(Collector):
    """Takes every picture of a task, and is asked for the last one."""

    def __init__(self) -> None:
        self._picture: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """A new one, from whatever thread."""
        self._picture = progress

    def collect(self) -> Iterator[Metric]:
        """Nothing before the first one."""
        if self._picture is not None:
            yield from metric_families(self._picture)


@contextmanager
def metrics_page(address: str) -> Iterator[Latest]:
    """Served at `[HOST:]PORT`, to this machine alone unless a host is named; port 0 is any that is free."""
    host, port = _parsed(address)
    latest = Latest()
    registry = CollectorRegistry()
    registry.register(latest)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:  # a name with an empty label is none that can be looked up
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(
            "metrics-address",
            f"the metrics cannot be served at {address}: {why}",
            todo="Name another port, or 0 for any that is free",
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
        todo = "PORT or HOST:PORT, as 9300 or 0.0.0.0:9300"
        raise ConfigError("metrics-address", f"{address!r} is no address to serve metrics at", todo=todo)
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)
