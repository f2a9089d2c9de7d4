"""Measures how fast a follower copies a relay, compared with a plain copy of its files, and how much latency it adds.

    python bench/follow/measure.py [--megabytes N] [--rate N] [--seconds N] [--rounds N] [--result FILE]

The relay server runs in a process of its own, as `pidts replicate --serve` does. A round copies the whole relay three
times, one after the other: as plain files that are then made durable, by a follower without TLS, by a follower with
TLS. The latency, at `--rate` transactions a second, begins when a transaction is durable in the relay server's relay.
The latency ends when a reader of the copy sees the transaction.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from pidts.follow.client import RelayServerAddress
from pidts.follow.follower import Follower, FollowerConfig
from pidts.follow.served_relay import ServedSource
from pidts.follow.server import RelayEndpoint, relay_server
from pidts.model import Lsn
from pidts.relay import RelayReader, RelayWriter
from pidts.relay.watch import FolderWatch
from pidts.replicate import AppliedPlace
from pidts.source import SourceConfig

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2]))

from machine import machine
from tests.login.certificates import Authority
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

_PIECES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--result", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine(), "load": os.getloadavg(), "rounds": [], "latency_ms": {}}
    with tempfile.TemporaryDirectory() as root, ExitStack() as cleanup:
        folder = Path(root)
        (folder / "token").touch(0o600)
        (folder / "token").write_text("a token that nobody guesses")
        authority = Authority(folder / "ca", "bench")
        authority.sign("server", addresses=("127.0.0.1",))
        size, end = fill(folder / "relay", options.megabytes)
        served = {tls: cleanup.enter_context(Served(folder, "relay", tls=tls)) for tls in (False, True)}
        for _ in range(options.rounds):
            seconds = {"plain copy": plain(folder)}
            for tls, name in ((False, "followed"), (True, "followed with TLS")):
                seconds[name] = followed(folder, served[tls].url, end)
            reported = {name: round(size / 1e6 / took, 1) for name, took in seconds.items()}
            results["rounds"].append({"MB/s": reported})
            print(reported)
        for tls, name in ((False, "followed"), (True, "followed with TLS")):
            results["latency_ms"][name] = found = latency(folder, options.rate, options.seconds, tls=tls)
            print(name, found)
    if options.result:
        options.result.write_text(json.dumps(results, indent=1) + "\n")


def fill(relay: Path, megabytes: int) -> tuple[int, Lsn]:
    """Writes a relay of this size, in segments of 64 MB. Returns the relay's size in bytes, and its end."""
    writer = opened(relay)
    last = START
    with closing(writer):
        written = 0
        while written < megabytes << 20:
            log = sample_log(_PIECES, after=last, largest=4000)
            store(writer, log, every=200)
            written += sum(len(piece.raw) for piece in log)
            last = log[-1].transaction.lsn
    return sum(path.stat().st_size for path in (relay / "s").glob("0*")), last


def opened(relay: Path) -> RelayWriter:
    writer = RelayWriter.open(relay, "s", segment_bytes=64 << 20)
    if writer.state is None:
        writer.begin(ORIGIN, START, None)
        writer.start_segment(FORMAT_EVENT)
    return writer


class Served:
    """A relay server in a process of its own."""

    def __init__(self, folder: Path, relay: str, *, tls: bool, rate: int = 0, seconds: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(folder, relay, tls, rate, seconds, theirs), daemon=True)
        self._process.start()
        self.url: str = self.pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def serve(folder: Path, relay: str, tls: bool, rate: int, seconds: int, pipe: Connection) -> None:
    pair = (folder / "ca" / "server.pem", folder / "ca" / "server.key") if tls else (None, None)
    source = ServedSource(SourceConfig("127.0.0.1", 9, source_id="s"), folder / relay, 0, print)
    with relay_server([source], RelayEndpoint("127.0.0.1:0", folder / "token", *pair)) as url:
        writer = opened(folder / relay) if rate else None
        pipe.send(url)
        if writer is not None:
            pipe.recv()
            pipe.send(written(writer, rate, seconds))
        threading.Event().wait()


def written(writer: RelayWriter, rate: int, seconds: int) -> list[tuple[str, float]]:
    """Writes transactions at this rate. Returns the Lsn of each, and the time at which it was durable."""
    log, durable, begin = sample_log(rate * seconds), [], time.monotonic()
    for number, piece in enumerate(log):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        store(writer, [piece])
        durable.append((str(piece.transaction.lsn), time.monotonic()))
    return durable


def plain(folder: Path) -> float:
    begin = time.monotonic()
    shutil.copytree(folder / "relay", folder / "plain")
    for path in (folder / "plain" / "s").glob("0*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    took = time.monotonic() - begin
    shutil.rmtree(folder / "plain")
    return took


class Copying:
    """A follower in a thread of this process."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        address = RelayServerAddress(url, folder / "token", folder / "ca" / "ca.pem")
        self.relay, self._stop = folder / name, threading.Event()
        follower = Follower(FollowerConfig(address, "s", self.relay, "bench", AppliedPlace(START, "", "")))
        self._thread = threading.Thread(target=follower.run, args=(self._stop,))
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        shutil.rmtree(self.relay)


def followed(folder: Path, url: str, end: Lsn) -> float:
    begin = time.monotonic()
    copy = Copying(folder, url, "copy")
    with closing(RelayReader(copy.relay, "s")) as reader:
        while reader.received != end:
            time.sleep(0.01)
    took = time.monotonic() - begin
    copy.end()
    return took


def latency(folder: Path, rate: int, seconds: int, *, tls: bool) -> dict[str, float]:
    with Served(folder, f"live-{tls}", tls=tls, rate=rate, seconds=seconds) as served:
        copy = Copying(folder, served.url, "copy")
        with closing(RelayReader(copy.relay, "s")) as reader:
            while reader.received is None:
                time.sleep(0.01)
            watch, seen, total = FolderWatch(copy.relay / "s"), {}, rate * seconds
            served.pipe.send("begin")
            last = START
            while len(seen) < total:
                watch.wait(0.1)
                now = time.monotonic()
                for entry in reader.entries(last):
                    last = entry.transaction.lsn
                    seen[str(last)] = now
            watch.close()
        copy.end()
        found = sorted((seen[lsn] - at) * 1000 for lsn, at in served.pipe.recv())
    quantiles = statistics.quantiles(found, n=100)
    return {"median": round(quantiles[49], 2), "p95": round(quantiles[94], 2), "p99": round(quantiles[98], 2)}


if __name__ == "__main__":
    main()
