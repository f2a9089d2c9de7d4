"""Without GTIDs, the log of a standby is read from a place at which nothing is lost, whatever the order of its commits
is.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.binlog.transaction_identity import Identity, begins_transaction, identity_of
from pidts.model import Lsn, Position, Transient, Where
from pidts.replicate.standby_start import Begun, Known, StandbyStart, aligned

WHERE = Where(source="one")


def _identity(number: int) -> Identity:
    return 1, str(number)


def _place(index: int) -> Position:
    return Position("bin.000001", 4 + 10 * index)


def _start(log: list[int], received: list[int], awaited: list[int] | None = None) -> StandbyStart:
    begun: list[Begun] = [(_place(index), _identity(number)) for index, number in enumerate(log)]
    known = Known(Counter(map(_identity, received)), Counter(map(_identity, received if awaited is None else awaited)))
    return aligned(begun, lambda: _place(len(log)), known, 1, WHERE)


def test_after_received_transactions_nothing_comes_twice() -> None:
    assert _start([1, 2, 3, 4, 5], [1, 2, 3]) == StandbyStart(_place(3), None)
    assert _start([1, 2, 3], [1, 2, 3]) == StandbyStart(_place(3), None)


def test_changes_that_a_standby_committed_in_another_order_come_twice_up_to_a_known_place() -> None:
    assert _start([1, 4, 2, 3, 5], [1, 2, 3]) == StandbyStart(_place(1), Lsn.at(_place(4), 1))


def test_a_standby_that_lagged_repeats_nothing_of_what_is_known() -> None:
    assert _start([1, 2, 3, 4, 5], [1, 2, 3, 4], awaited=[4]) == StandbyStart(_place(4), None)


def test_each_of_several_equal_identities_counts_for_one_transaction() -> None:
    assert _start([7, 7, 7], [7, 7]) == StandbyStart(_place(2), None)
    with pytest.raises(Transient):
        _start([7], [7, 7])


def test_a_standby_that_lacks_a_received_transaction_is_awaited() -> None:
    with pytest.raises(Transient) as lacking:
        _start([1, 2, 4], [1, 2, 3])
    assert lacking.value.code == "source-behind"
    assert "lacks 1 transactions" in lacking.value.what


@given(st.permutations(range(12)), st.integers(0, 12), st.data())
def test_nothing_is_lost_and_repeats_end_at_the_place(log: list[int], count: int, data: st.DataObject) -> None:
    received = data.draw(st.permutations(log))[:count]
    found = _start(log, received)
    at = (found.place.offset - 4) // 10
    assert set(log[:at]) <= set(received)
    again = [index for index in range(at, len(log)) if log[index] in received]
    assert bool(again) is (found.repeats is not None)
    if found.repeats is not None:
        assert all(Lsn.at(_place(index), 1) < found.repeats for index in again)


def _gtid_event(kind: int, body: bytes, server_id: int = 9) -> bytes:
    size = 19 + len(body) + 4
    head = (5).to_bytes(4, "little") + bytes([kind]) + server_id.to_bytes(4, "little") + size.to_bytes(4, "little")
    return head + bytes(6) + body + bytes(4)


def test_the_identity_of_a_transaction_without_gtid_is_its_first_commit() -> None:
    clocks = bytes(1 + 16 + 8 + 1 + 8 + 8)
    there = _gtid_event(34, clocks + (77).to_bytes(7, "little") + bytes(5))
    replicated = _gtid_event(34, clocks + (99 | 1 << 55).to_bytes(7, "little") + (77).to_bytes(7, "little") + bytes(9))
    assert begins_transaction(there)
    assert identity_of(there) == identity_of(replicated) == (9, "77")
    assert identity_of(_gtid_event(34, clocks)) is None  # MySQL 5.7
    assert identity_of(_gtid_event(34, clocks + bytes(7 + 5))) is None  # The commit time is not known.
