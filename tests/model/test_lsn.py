"""Lsns have the same order as objects, as bytes and as texts, and are the same places as the server's positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Lsn, Position

lsns = st.builds(
    Lsn,
    st.integers(0, 10**4 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 10**12 - 1),
    st.integers(0, 2**32 - 1),
)
bases = st.from_regex(r"[a-z][a-z0-9.\-]{0,20}", fullmatch=True)


@given(lsns, lsns)
def test_lsns_bytes_and_texts_have_the_same_order(one, other):
    assert (one < other) == (one.to_bytes() < other.to_bytes()) == (str(one) < str(other))
    assert (one == other) == (one.to_bytes() == other.to_bytes()) == (str(one) == str(other))


@given(lsns)
def test_bytes_and_text_give_the_lsn_back(lsn):
    assert Lsn.from_bytes(lsn.to_bytes()) == lsn
    assert Lsn.parse(str(lsn)) == lsn
    assert len(lsn.to_bytes()) == Lsn.SIZE


@given(lsns, st.integers(0, 2**32 - 1))
def test_rows_of_one_event_are_next_to_each_other(lsn, row):
    assert lsn.at_row(row).row == row
    assert lsn.at_row(row).at_row(lsn.row) == lsn


@given(lsns, bases)
def test_a_position_is_an_lsn_without_its_row(lsn, base):
    position = lsn.position(base)
    assert Lsn.at(position, lsn.change_no) == lsn.at_row(0)
    assert Position.parse(str(position)) == position
    assert (position.base, position.log_index, position.offset) == (base, lsn.log_index, lsn.offset)


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "1.2.3.x", "-1.2.3.4", "1.2.3.٤", "1. 2.3.4"])
def test_texts_that_are_no_lsn_are_refused(text):
    with pytest.raises(ValueError, match="not an Lsn"):
        Lsn.parse(text)


@pytest.mark.parametrize(
    "parts", [(-1, 0, 0, 0), (10**4, 0, 0, 0), (0, 2**32, 0, 0), (0, 0, 10**12, 0), (0, 0, 0, 2**32)]
)
def test_numbers_that_would_break_the_order_are_refused(parts):
    with pytest.raises(ValueError, match="out of range"):
        Lsn(*parts)


@pytest.mark.parametrize(
    "text", ["", "bin", "bin:4", "bin.x:4", "bin.000001", "bin.000001:", "bin.000001:-4", ".000001:4"]
)
def test_texts_that_are_no_position_are_refused(text):
    with pytest.raises(ValueError, match="not a"):
        Position.parse(text)


def test_positions_are_written_as_servers_write_them():
    assert str(Position.of("bin", 42, 1337)) == "bin.000042:1337"
    assert str(Position.of("a.b", 10**7, 4)) == "a.b.10000000:4"
