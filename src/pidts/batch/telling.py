"""A long batch as one worker sees it: read from the log again and again, never in memory as a whole.

Decoding is many times faster than any target writes. So each worker decodes the whole batch and keeps what is its own,
instead of having others send it what they have decoded: nothing is kept on disk, nothing passes through the JVM, and
whoever is interrupted begins again by himself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pidts.batch.context import JobContext
from pidts.batch.decoding import AT_ONCE, decode_log
from pidts.batch.parts import Stretch
from pidts.plan import LogSlice


def told(context: JobContext, slices: Sequence[LogSlice], worker: int) -> Iterator[Stretch]:
    """The changes of one worker in log order."""
    for piece in slices:
        for batches in decode_log(context, piece):
            mine = (context.dealt(batch)[worker] for batch in batches)
            yield Stretch([batch for batch in mine if batch is not None], inside=piece.extent.size > AT_ONCE)
