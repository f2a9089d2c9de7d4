"""Records pairs of places in a standby's log and its source's log, for a failover without GTIDs.

A sample is a pair of places: *S* in the standby's log, and *Q* in the source's log. First the end of the standby's log
is read (*S*), then the end of the source's log (*Q*). A standby has only changes that its source wrote before. So every
change before *S* in the standby's log is before *Q* in the source's log. If the source's log was received up to *Q* or
further, reading can continue at *S* in the standby's log, and no change is lost.

Comparing times would lose changes if the clocks differ. An example: the standby's clock is three seconds slow. The
standby's log up to "10:00:00" includes the changes of its source up to 10:00:03. If a reader had received the source's
log up to 10:00:01 and continued at "10:00:00", it would skip two seconds of the log. Pairs of places need no clock. The
time in a sample only decides how long the sample is kept.

If a standby lags, its place in a sample is earlier, and more changes come twice. Crash points: the file is replaced as
a whole. Without the file, a failover to the standby is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from pidts.durable_folder import replace_file
from pidts.model import Position
from pidts.relay.segments.index import Origin

_KEPT = ((60, 1), (600, 10), (3_600, 60), (7 * 86_400, 600))
"""Pairs of an age and an interval, in seconds: of the samples up to this age, one is kept for each interval."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A pair of places: all changes before `standby` in the standby's log are before `source` in the source's log."""

    time: float
    source: Position
    standby: Position


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one standby, the oldest first."""

    source: Origin
    """The log in which the `source` places of the samples are."""
    standby: str
    """The identity of the standby."""
    samples: tuple[Sample, ...] = ()

    def with_sample(self, sample: Sample) -> Samples:
        """Returns the samples with a new one, and without the older samples that `_KEPT` does not keep."""
        slots: set[tuple[int, int]] = set()
        kept = []
        for one in (sample, *reversed(self.samples)):
            age = sample.time - one.time
            step = next((step for limit, step in _KEPT if age < limit), 0)
            if step and (slot := (step, int(one.time // step))) not in slots:
                slots.add(slot)
                kept.append(one)
        return Samples(self.source, self.standby, tuple(reversed(kept)))

    def usable(self, received: Position) -> list[Sample]:
        """Returns the samples whose source place is not after `received`, newest first."""
        return [one for one in reversed(self.samples) if _key(one.source) <= _key(received)]


def read_samples(folder: Path, address: str) -> Samples | None:
    """Returns the samples of a standby; None if there are none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(_path(folder, address).read_text("utf-8"))
        samples = tuple(_samples(found["samples"]))
        return Samples(Origin(**found["source"]), str(found["standby"]), samples)
    return None


def write_samples(folder: Path, address: str, samples: Samples) -> None:
    """Replaces the samples of a standby. If a crash loses the latest ones, more changes come twice after a failover."""
    rows = [[one.time, str(one.source), str(one.standby)] for one in samples.samples]
    content = {"source": asdict(samples.source), "standby": samples.standby, "samples": rows}
    replace_file(_path(folder, address), json.dumps(content), durable=False)


def _samples(rows: Iterable[tuple[float, str, str]]) -> Iterable[Sample]:
    for time, source, standby in rows:
        yield Sample(float(time), Position.parse(source), Position.parse(standby))


def _path(folder: Path, address: str) -> Path:
    return folder / f"standby.{quote(address, safe='')}.json"


def _key(place: Position) -> tuple[int, int]:
    return place.log_index, place.offset
