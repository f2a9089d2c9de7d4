"""If the target refuses a batch because a row differs, the batch is prepared once more, and not again and again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from tests.apply.table_history import PLAIN, batch_of
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit
from pidts.model import Checkpoint, Halted, Lsn, OnDivergence, Op


def test_an_error_before_rows_are_compared_again_ends_the_commit() -> None:
    """After the refusal, the target fails over to a server that lacks the last batches."""
    target, begun = ValuesTarget("refused and lost"), 0
    with closing(target.connect()) as session:
        create(session, PLAIN)
        start = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 50))
        (claimed,) = session.meta.checkpoints.claim("t", "s", 1, start)

    def fail_over(point: str) -> None:
        nonlocal begun
        begun += point == "begin"
        assert begun < 5, "it is tried for ever"
        if begun == 2:
            store = target.store
            store.checkpoints = {of: replace(one, lsn=Lsn(0, 1, 40)) for of, one in store.checkpoints.items()}

    before, after = ({"id": 1, "a": value, "b": "x", "u": 1} for value in (1, 2))
    rules = ApplyRules(task="t", source="s", on_divergence=OnDivergence.LOCK)
    commit = Commit((claimed,), (replace(claimed, lsn=Lsn(0, 1, 400), batch=1),))
    changes = batch_of(PLAIN, [(Op.UPDATE, before, after)])
    target.store.hook = fail_over
    with Committer(target, "t", "s", claimed.epoch, rules=rules) as committer, pytest.raises(Halted) as halted:
        apply(committer, commit, 0, [Blob(0, Blob.first_order(0), changes)])
    assert halted.value.code == "checkpoint-mismatch"
    target.forget()
