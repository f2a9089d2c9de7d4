"""A stored checkpoint decides whether a batch is written."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.apply import Outcome, Retry, settle
from pidts.model import Checkpoint, Fenced, Halted, Lsn


def at(offset: int, *, epoch: int = 1, copy: str = "", batch: int = 0) -> Checkpoint:
    return Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, offset), epoch=epoch, copy=copy, batch=batch)


def test_the_next_batch_is_applied():
    assert settle(at(10), Lsn(0, 1, 10), at(20), rows=3) is Outcome.APPLIED


@pytest.mark.parametrize("stored", [20, 21, 500])
def test_a_committed_batch_is_not_applied_again(stored):
    assert settle(at(stored), Lsn(0, 1, 10), at(20), rows=3) is Outcome.ALREADY


@pytest.mark.parametrize("stored", [9, 11, 19])
def test_a_gap_or_an_overlap_halts(stored):
    with pytest.raises(Halted, match=r"covers .* but the target is at") as caught:
        settle(at(stored), Lsn(0, 1, 10), at(20), rows=3)
    assert_mismatch(caught.value, stored)


def assert_mismatch(error: Halted, stored: int) -> None:
    assert (error.code, error.where.source, error.where.position) == (
        "checkpoint-mismatch",
        "s",
        str(Lsn(0, 1, stored)),
    )


def test_a_checkpoint_row_that_was_edited_is_refused():
    """The row is refused even if its Lsn is the one at which the batch begins or ends."""
    for place in (10, 20):
        with pytest.raises(Halted, match="checkpoint-altered") as caught:
            settle(replace(at(place), altered="its position is not readable"), Lsn(0, 1, 10), at(20), rows=3)
        assert "--resync" in caught.value.todo


def test_a_batch_cannot_end_before_it_begins():
    with pytest.raises(Halted, match="before its start") as caught:
        settle(at(10), Lsn(0, 1, 10), at(5), rows=3)
    assert_mismatch(caught.value, 10)


@pytest.mark.parametrize("stored", [9, 10, 20])
@pytest.mark.parametrize("epoch", [1, 3])
def test_another_epoch_is_refused_before_anything_else_is_looked_at(epoch, stored):
    with pytest.raises(Fenced, match=f"epoch 2, this run has {epoch}") as caught:
        settle(at(stored, epoch=2), Lsn(0, 1, 10), at(20, epoch=epoch), rows=3)
    assert (caught.value.code, caught.value.where.source) == ("fenced", "s")


def test_a_copy_batch_is_distinguished_by_its_progress():
    assert settle(at(10, copy="a"), Lsn(0, 1, 10), at(10, copy="b"), rows=3) is Outcome.APPLIED
    assert settle(at(10, copy="b"), Lsn(0, 1, 10), at(10, copy="b"), rows=3) is Outcome.ALREADY


def test_an_attempt_that_wakes_up_after_a_later_batch_of_the_same_place_does_not_take_it_back():
    third = at(10, copy="c", batch=3)
    assert settle(third, Lsn(0, 1, 10), at(10, copy="b", batch=2), rows=3) is Outcome.ALREADY


def test_rows_that_would_move_nothing_are_never_dropped_in_silence():
    with pytest.raises(Halted, match="neither") as caught:
        settle(at(10, copy="b", batch=1), Lsn(0, 1, 10), at(10, copy="b", batch=2), rows=1)
    assert_mismatch(caught.value, 10)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=8, unique=True).map(sorted), st.data())
def test_any_replay_of_a_chain_applies_each_batch_once(ends, data):
    batches = list(pairwise(ends))
    stored, applied = at(ends[0]), []
    position = 0
    while position < len(batches):
        begin, end = batches[position]
        if settle(stored, Lsn(0, 1, begin), at(end), rows=1) is Outcome.APPLIED:
            stored = at(end)
            applied.append(end)
        back = data.draw(st.integers(0, 1 if len(applied) < 20 else 0))
        position = max(0, position + 1 - 2 * back) if data.draw(st.booleans()) else position + 1
        if len(applied) == len(batches):
            break
    assert applied == ends[1:]


def test_pauses_grow_to_a_limit():
    retry = Retry(attempts=9, first=0.1, longest=1.0)
    assert all(0.05 <= retry.pause(1) <= 0.1 for _ in range(50))
    assert all(0.5 <= retry.pause(8) <= 1.0 for _ in range(50))


def test_a_checkpoint_crosses_process_borders():
    assert pickle.loads(pickle.dumps(at(5))) == at(5)
