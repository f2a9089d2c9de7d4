"""Reduces rows from a copy or a repair, and changes of tables of which the target may have later rows than the log."""

from __future__ import annotations

import pytest

from pidts.model import Op
from pidts.reduce import Counts, buckets, net_changes

from .test_net_changes import INT, C, D, N, U, batch, rows, table

pytestmark = pytest.mark.usefixtures("each_way")

A = Op.ABSENT
TWO = table(INT, INT)
UNIQUE = table(INT, INT, unique=["b"])


@pytest.mark.parametrize(
    ("log", "deletes", "upserts"),
    [
        pytest.param([], [(1,)], [], id="nothing in the log"),
        pytest.param([(N, None, (1, 5))], [], [(1, 5)], id="it came behind the answer"),
        pytest.param([(U, (1, 4), (1, 5)), (D, (1, 5), None)], [(1,)], [], id="it went before the answer"),
        pytest.param([(U, (2, 4), (1, 4))], [(2,)], [(1, 4)], id="another row came to its key"),
        pytest.param([(U, (1, 4), (2, 4))], [(1,)], [(2, 4)], id="it went to another key"),
    ],
)
def test_a_key_that_the_source_lacks_is_removed_unless_the_log_has_the_row(log, deletes, upserts):
    gone = batch(TWO, (A, (1, None), None))
    for order in ([gone, batch(TWO, *log)], [batch(TWO, *log), gone]):
        (found,) = net_changes(order)
        assert (rows(found.deletes), rows(found.upserts)) == (deletes, upserts)


def test_a_copied_row_does_not_count_as_a_change():
    (found,) = net_changes([batch(TWO, (A, (1, None), None), (A, (2, None), None), (D, (2, 0), None))])
    assert found.counts == Counts(deleted=1, removed=2)
    assert found.counts.total == 3
    assert (found.counts + found.counts).removed == 4


def test_an_absent_key_is_assigned_to_the_worker_of_its_row():
    found = batch(TWO, *((A, (number, None), None) for number in range(50)))
    written = batch(TWO, *((N, None, (number, 7)) for number in range(50)))
    for absent, inserted in zip(buckets(found, 3), buckets(written, 3), strict=True):
        assert absent is not None
        assert inserted is not None
        keys = [image["a"] for image in absent.rows["before"].to_pylist()]
        assert keys == [image["a"] for image in inserted.rows["after"].to_pylist()]


def test_where_the_target_may_be_ahead_all_that_the_log_changes_is_removed_first():
    changes = [(U, (1, 5), (1, 6)), (U, (1, 6), (1, 5)), (N, None, (2, 7)), (C, None, (3, 8)), (C, None, (1, 4))]
    (found,) = net_changes([batch(UNIQUE, *changes)], ahead=[UNIQUE.name])
    assert rows(found.deletes) == [(1,), (2,)]
    assert rows(found.upserts) == [(1, 5), (2, 7), (3, 8)]
    (plain,) = net_changes([batch(UNIQUE, *changes)])
    assert rows(plain.deletes) == []
    (without,) = net_changes([batch(TWO, *changes)], ahead=[TWO.name])
    assert rows(without.deletes) == [], "no unique value can be taken"
