"""Feeds damaged logs to plain and to compiled code, which must agree: `python -m tests.binlog.logs.fuzz --seconds 600`.

Recordings of real servers are cut into transactions. Their events are damaged: bits and lengths change, ends are cut
off, pieces of other events get in, events change their order. Then sizes and checksums are made right again, so that
the decoder does not refuse the log before it comes to the damage. If a damaged log makes
plain code run lines that it has run for no earlier log, the damaged log is kept, and damaged further. Compiled code
runs in a process of its own: if it reads where it must not, that process dies, and this is a finding like any other.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import select
import struct
import subprocess
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.binlog.logs.scenarios import Recording, kept, load
from tests.binlog.logs.steps import Coverage
from tests.binlog.logs.twins import Outcome, decoded, disagreement

from pidts.binlog import LogWalker, iter_raw
from pidts.model import ChangeBatch, Halted, Lsn

PATIENCE = 30
HEADER = 19
_NUMBERS = (0, 1, 2, 127, 128, 250, 251, 252, 253, 254, 255, 256, 32767, 32768, 65535, 65536, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A log to decode: its recording, its events without checksums, and how to decode it."""

    name: str
    events: tuple[bytes, ...]
    from_log: bool = False
    """The structures come from the log itself, not from the recording."""
    after: int = -1
    """The event after whose first row decoding begins."""

    def raw(self) -> bytes:
        """Returns the bytes as a server would send them."""
        head = first_event(self.name)
        sealed = head[-5] == 1
        pieces = [head]
        for event in self.events:
            size = len(event) + 4 * sealed
            piece = event[:9] + struct.pack("<I", size) + event[13:]
            pieces.append(piece + (struct.pack("<I", zlib.crc32(piece)) if sealed else b""))
        return b"".join(pieces)

    def decode(self, kernel: str) -> Outcome:
        recording = recorded(self.name)
        walker = LogWalker(recording.log_file)
        walker.feed(first_event(self.name))
        after = None
        if 0 <= self.after < len(self.events):
            end = struct.unpack("<I", self.events[self.after][13:17])[0]
            after = Lsn(1, walker.log_index, max(end - len(self.events[self.after]) - 4, 0))
        return decoded(
            kernel,
            self.raw(),
            format=walker.format,
            log_file=recording.log_file,
            change_no=1,
            structures=_from_log if self.from_log else recording.structures,
            after=after,
        )


def _from_log(table_map: Any) -> Any:
    return table_map.to_table(placeholders=True)


@cache
def recorded(name: str) -> Recording:
    return load(name)


@cache
def first_event(name: str) -> bytes:
    return bytes(next(iter_raw(recorded(name).events)))


def seeds() -> list[Sample]:
    """Returns every transaction of every recording as a sample of its own."""
    found = []
    for name in kept():
        sealed = first_event(name)[-5] == 1
        group: list[bytes] = []
        for raw in list(iter_raw(recorded(name).events))[1:]:
            event = bytes(raw[:-4] if sealed else raw)
            if event[4] in (33, 34, 42, 162) and group:
                found.append(Sample(name, tuple(group)))
                group = []
            if event[4] == 15:
                break
            group.append(event)
        if group:
            found.append(Sample(name, tuple(group)))
    return [sample for sample in found if sum(map(len, sample.events)) < 100_000]


class Damage:
    """Damages samples in random ways."""

    def __init__(self, chance: random.Random, corpus: list[Sample]) -> None:
        self._chance, self._corpus = chance, corpus

    def of(self, sample: Sample) -> Sample:
        for _ in range(self._chance.choice((1, 1, 1, 2, 3, 6))):
            sample = self._chance.choice(self._ways)(self, sample)
        return sample

    def _inside(self, sample: Sample, change: Callable[[bytearray], None]) -> Sample:
        if not sample.events:
            return sample
        events = list(sample.events)
        place = self._chance.randrange(len(events))
        event = bytearray(events[place])
        if len(event) > HEADER:
            change(event)
        events[place] = bytes(event)
        return replace(sample, events=tuple(events))

    def _place(self, event: bytearray) -> int:
        """Returns a byte to damage: mostly after the header, often near it, where lengths are; seldom in the header."""
        lowest = 4 if self._chance.random() < 0.05 else HEADER
        highest = len(event) - 1 if self._chance.random() < 0.6 else min(len(event) - 1, HEADER + 60)
        return self._chance.randint(min(lowest, highest), highest)

    def bits(self, sample: Sample) -> Sample:
        def change(event: bytearray) -> None:
            event[self._place(event)] ^= 1 << self._chance.randrange(8)

        return self._inside(sample, change)

    def number(self, sample: Sample) -> Sample:
        def change(event: bytearray) -> None:
            size, place = self._chance.choice((1, 1, 2, 3, 4)), self._place(event)
            number = self._chance.choice((self._chance.choice(_NUMBERS), len(event), len(event) - place))
            event[place : place + size] = (number % 256**size).to_bytes(size, self._chance.choice(("little", "big")))

        return self._inside(sample, change)

    def cut(self, sample: Sample) -> Sample:
        def change(event: bytearray) -> None:
            del event[self._place(event) :]
            event.extend(bytes(max(HEADER - len(event), 0)))

        return self._inside(sample, change)

    def splice(self, sample: Sample) -> Sample:
        other = self._chance.choice(self._chance.choice(self._corpus).events or (bytes(HEADER),))

        def change(event: bytearray) -> None:
            begin = self._chance.randrange(len(other))
            piece = other[begin : begin + self._chance.randint(1, 64)]
            place = self._place(event)
            event[place : place + self._chance.choice((0, len(piece)))] = piece

        return self._inside(sample, change)

    def order(self, sample: Sample) -> Sample:
        events = list(sample.events)
        other = self._chance.choice(self._corpus)
        if not events:
            return other
        first, second = (self._chance.randrange(len(events)) for _ in range(2))
        match self._chance.randrange(5):
            case 0:
                events[first], events[second] = events[second], events[first]
            case 1:
                del events[first]
            case 2:
                events.insert(first, events[second])
            case 3 if other.name == sample.name:
                events += other.events
            case _ if other.events:
                events.insert(first, self._chance.choice(other.events))
        return replace(sample, events=tuple(events[:60]))

    def position(self, sample: Sample) -> Sample:
        """Sets the positions in the headers to 0: most damage changes sizes, so that the positions would be wrong."""
        return replace(sample, events=tuple(event[:13] + bytes(4) + event[17:] for event in sample.events))

    def manner(self, sample: Sample) -> Sample:
        after = self._chance.randint(-1, len(sample.events) - 1)
        return replace(sample, from_log=self._chance.random() < 0.5, after=after)

    _ways = (bits, bits, number, number, number, cut, splice, splice, order, position, position, manner)


def serve() -> None:
    """Decodes each sample from stdin with compiled code, and writes the result to stdout."""
    while (reported := _read(sys.stdin.fileno())) is not None:
        outcome = _outcome(Sample(*reported), "compiled")
        found = [(batch.table, _packed(batch)) for batch in outcome] if isinstance(outcome, list) else outcome
        _write(sys.stdout.fileno(), found)


def _outcome(sample: Sample, kernel: str) -> Outcome | str:
    """Decodes the sample with this kernel, and returns the result.

    An error that is none of PiDTS's own classes is returned as text: it is a finding.
    """
    try:
        return sample.decode(kernel)
    except Exception:  # noqa: BLE001 - that is what is looked for
        return f"{kernel} code raises {traceback.format_exc(limit=-3)}"


def _write(pipe: int, found: Any) -> None:
    data = pickle.dumps(found)
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _read(pipe: int) -> Any:
    """Reads an answer; None if the other process has ended."""
    head = _take(pipe, 8)
    return pickle.loads(_take(pipe, struct.unpack("<Q", head)[0])) if head else None


def _take(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (piece := os.read(pipe, size - len(data))):
            return b""
        data += piece
    return data


def _packed(batch: ChangeBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.rows.schema) as stream:
        stream.write_batch(batch.rows)
    return bytes(sink.getvalue())


SERVE = (sys.executable, "-m", "tests.binlog.logs.fuzz", "--serve")


class Compiled:
    """Compiled code in a process of its own, which is replaced when it has died."""

    def __init__(self, command: Sequence[str] = SERVE) -> None:
        self._command = command
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()

    def ask(self, sample: Sample) -> None:
        with suppress(BrokenPipeError):
            _write(self._to, (sample.name, sample.events, sample.from_log, sample.after))

    def answer(self, patience: float = PATIENCE) -> Outcome | str:
        """Returns the result of decoding, or how the process ended."""
        if not select.select([self._from], [], [], patience)[0]:
            found = f"compiled code does not come to an end within {patience} seconds"
        elif (outcome := _read(self._from)) is None:
            found = f"compiled code ended its process with {self._process.wait(PATIENCE)}"
        elif isinstance(outcome, Halted | str):
            return outcome
        else:
            return [ChangeBatch(table, pa.ipc.open_stream(data).read_next_batch()) for table, data in outcome]
        self.stop()
        self._start()
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Finding:
    sample: Sample
    what: str


@dataclass
class Report:
    runs: int
    rows: int
    steps: int
    corpus: int
    findings: list[Finding]

    def __str__(self) -> str:
        found = (
            f"{self.runs} logs ({self.rows} with rows), {self.steps} steps of plain code, {self.corpus} samples kept"
        )
        return "\n".join([found, *(f"{finding.sample.name}: {finding.what}" for finding in self.findings)])


def run(seconds: float, seed: int, compiled: Compiled, *, most: int = 5) -> Report:
    """Damages samples until the time is over or enough findings are made."""
    chance = random.Random(seed)
    corpus = seeds()
    damage, coverage = Damage(chance, corpus), Coverage()
    report = Report(0, 0, 0, 0, [])
    fresh = list(corpus)
    chance.shuffle(fresh)
    compiled.ask(corpus[0])
    # The first call may have to compile the code.
    compiled.answer(20 * PATIENCE)
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(report.findings) < most:
        # The newest samples are the least explored.
        parent = chance.choice(corpus[-40:] if chance.random() < 0.3 else corpus)
        sample = fresh.pop() if fresh and chance.random() < 0.5 else damage.of(parent)
        compiled.ask(sample)
        plain, new = coverage.run(lambda: _outcome(sample, "python"))  # noqa: B023 - done before the next one comes
        ours = compiled.answer()
        report.runs += 1
        report.rows += isinstance(plain, list) and any(map(len, plain))
        what = next((found for found in (plain, ours) if isinstance(found, str)), None) or disagreement(ours, plain)
        if what is not None:
            report.findings.append(Finding(sample, what))
        elif new:
            corpus.append(sample)
    report.steps, report.corpus = len(coverage.steps), len(corpus)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where what is found is kept")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--again", type=Path, help="one finding again, in this process")
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    if options.again:
        sample = Sample(*pickle.loads(options.again.read_bytes()))
        print(disagreement(sample.decode("compiled"), sample.decode("python")))
        return 0
    seed = options.seed if options.seed is not None else time.time_ns() % 2**32
    compiled = Compiled()
    try:
        report = run(options.seconds, seed, compiled)
    finally:
        compiled.stop()
    print(f"seed {seed}: {report}")
    for number, finding in enumerate(report.findings):
        options.keep.mkdir(exist_ok=True)
        (options.keep / f"{seed}-{number}.pickle").write_bytes(pickle.dumps(astuple(finding.sample)))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
