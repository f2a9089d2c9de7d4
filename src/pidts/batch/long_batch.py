"""Reads a long batch for one worker from the log, again for each attempt, so that it is never in memory as a whole.

Decoding is many times faster than any target writes. So each worker decodes the whole batch and takes only its own
changes, instead of getting them decoded from others. Nothing is stored on disk, nothing passes through the JVM, and a
worker that is interrupted begins again by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pidts.batch.context import JobContext
from pidts.batch.decoding import AT_ONCE, decode_log
from pidts.batch.parts import Stretch
from pidts.plan import LogSlice


def told(context: JobContext, slices: Sequence[LogSlice], worker: int) -> Iterator[Stretch]:
    """Yields the changes of one worker in log order."""
    for piece in slices:
        for batches in decode_log(context, piece):
            mine = (context.dealt(batch)[worker] for batch in batches)
            yield Stretch([batch for batch in mine if batch is not None], inside=piece.extent.size > AT_ONCE)
