"""From all blobs of one worker to the target: reduce them, and commit them with that worker's checkpoint.

The same function whether the driver runs it or a Spark job does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply import Committer, Outcome, TargetSession
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit
from pidts.model import ChangeBatch, Lsn, Op
from pidts.reduce import Counts, NetChange, net_changes


def apply(committer: Committer, commit: Commit, worker: int, blobs: Iterable[Blob]) -> Counts:
    """Make one worker's part of the batch visible on the target, with its checkpoint, in one transaction."""
    before, after = commit.before[worker], commit.after[worker]
    ordered = sorted(blobs, key=lambda blob: blob.order)
    work = _Work(_behind(before.lsn, [blob.changes for blob in ordered]))
    outcome = committer.commit(worker, before.lsn, after, work, has_rows=any(map(len, work.batches)))
    return Counts() if outcome is Outcome.ALREADY else work.counts


class _Work:
    """What a commit writes, told anew for each of its attempts."""

    def __init__(self, batches: Sequence[ChangeBatch]) -> None:
        self.batches = batches
        self.counts = Counts()

    def __call__(self, session: TargetSession) -> Iterator[NetChange]:  # noqa: ARG002 - nothing here asks the target
        self.counts = Counts()
        for change in net_changes(self.batches):
            self.counts += change.counts
            yield change


def _behind(lsn: Lsn, batches: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Without the changes that this worker has committed in an earlier run, when it was ahead of the others."""
    kept = []
    for batch in batches:
        rows = batch.rows
        newer = pc.or_(
            pc.equal(rows["op"], int(Op.COPY)),
            pc.greater(rows["lsn"].cast(pa.binary()), pa.scalar(lsn.to_bytes(), pa.binary())),
        )
        kept.append(batch if pc.all(newer).as_py() else ChangeBatch(batch.table, rows.filter(newer)))
    return kept
