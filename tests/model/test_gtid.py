"""GTIDs and sets of GTIDs are read from the servers' texts and written as such, and the sets obey the algebra of sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import (
    MariaDbGtid,
    MariaDbGtidSet,
    MySqlGtid,
    MySqlGtidSet,
    parse_gtid,
    parse_gtid_set,
    with_gtids,
)

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"

mysql_gtids = st.builds(MySqlGtid, st.sampled_from([A, B]), st.sampled_from(["", "tag", "other_1"]), st.integers(1, 12))
mariadb_gtids = st.builds(MariaDbGtid, st.integers(0, 3), st.integers(1, 2), st.integers(1, 9))
members = st.frozensets(mysql_gtids, max_size=20)


def mysql_set(gtids) -> MySqlGtidSet:
    found = MySqlGtidSet()
    for gtid in gtids:
        found = found.add(gtid)
    return found


def everything() -> list[MySqlGtid]:
    return [MySqlGtid(uuid, tag, n) for uuid in (A, B) for tag in ("", "tag", "other_1") for n in range(1, 13)]


def listed(found: MySqlGtidSet) -> set[MySqlGtid]:
    return {gtid for gtid in everything() if found.contains(gtid)}


@given(members, members)
def test_mysql_sets_are_sets(one, other):
    left, right = mysql_set(one), mysql_set(other)
    assert listed(left) == one
    assert listed(left.union(right)) == one | other
    assert listed(left.subtract(right)) == one - other
    assert left.issubset(right) == (one <= other)
    assert left.union(right) == right.union(left)
    assert bool(left) == bool(one)


@given(members)
def test_equal_mysql_sets_are_equal_values_and_texts(gtids):
    found = mysql_set(sorted(gtids))
    assert mysql_set(sorted(gtids, reverse=True)) == found
    assert hash(mysql_set(gtids)) == hash(found)
    assert MySqlGtidSet.parse(str(found)) == found
    assert MySqlGtidSet.parse(str(found).upper().replace(",", ",\n ")) == found


@given(st.frozensets(mariadb_gtids), st.frozensets(mariadb_gtids))
def test_mariadb_sets_hold_everything_up_to_their_positions(one, other):
    left, right = MariaDbGtidSet.of(one), MariaDbGtidSet.of(other)
    both = left.union(right)
    assert all(left.contains(gtid) for gtid in one)
    assert left.issubset(both)
    assert right.issubset(both)
    assert both == right.union(left)
    assert left.issubset(right) == all(right.contains(gtid) for gtid in one)
    assert MariaDbGtidSet.parse(str(left)) == left
    for gtid in other:
        assert left.add(gtid).contains(gtid)
        assert left.issubset(left.add(gtid))


@given(mysql_gtids | mariadb_gtids)
def test_a_gtid_reads_itself(gtid):
    assert parse_gtid(str(gtid)) == gtid


def test_texts_of_servers():
    text = f"{B}:1-3:5:abc:7-10,\n{A.upper()}:1"
    assert str(parse_gtid_set(text)) == f"{A}:1,{B}:1-3:5:abc:7-10"
    assert str(parse_gtid_set(f"{A}:1-2:2-5:6")) == f"{A}:1-6"
    assert str(parse_gtid_set("1-2-3, 0-1-5")) == "0-1-5,1-2-3"


def test_the_flavour_of_a_set():
    assert parse_gtid_set("") == MySqlGtidSet()
    assert parse_gtid_set("", mariadb=True) == MariaDbGtidSet()
    assert isinstance(parse_gtid_set("0-1-5"), MariaDbGtidSet)
    assert isinstance(parse_gtid_set(f"{A}:1"), MySqlGtidSet)
    assert not MySqlGtidSet()
    assert not MariaDbGtidSet()


def test_a_set_holds_no_gtid_of_the_other_flavour():
    assert not parse_gtid_set("0-1-5").contains(parse_gtid(f"{A}:1"))
    assert not parse_gtid_set(f"{A}:1").contains(parse_gtid("0-1-1"))
    with pytest.raises(TypeError):
        parse_gtid_set("0-1-5").add(parse_gtid(f"{A}:1"))
    with pytest.raises(TypeError):
        parse_gtid_set(f"{A}:1").add(parse_gtid("0-1-1"))


@pytest.mark.parametrize(
    "text", ["", "0-1", "0-1-x", "0-1-2-3", f"{A}:", f"{A}:0", f"{A}:1:2", "x:1", f"{A}:9tag:1", "0-4294967296-1"]
)
def test_texts_that_are_no_gtid_are_refused(text):
    with pytest.raises(ValueError, match=r"GTID"):
        parse_gtid(text)


@pytest.mark.parametrize("text", [f"{A}", f"{A}:0", f"{A}:5-3", f"{A}:1-", "x:1", f"{A}:1:?:2", "0-1-5,x"])
def test_texts_that_are_no_set_are_refused(text):
    with pytest.raises(ValueError, match=r"GTID"):
        parse_gtid_set(text)


@given(
    st.lists(st.lists(mysql_gtids, max_size=4), max_size=5) | st.lists(st.lists(mariadb_gtids, max_size=4), max_size=5),
    st.integers(0, 4),
)
def test_a_set_that_grows_batch_by_batch_has_all_gtids(batches, jump):
    """One of the batches belongs to another source, whose set grows in the same process."""
    text, whole = "", []
    for number, batch in enumerate(batches):
        before, text = text, with_gtids(text, tuple(map(str, batch)))
        whole += map(str, batch)
        assert text == (str(parse_gtid_set(",".join(whole), mariadb=":" not in whole[0])) if whole else "")
        assert batch or text == before
        if number == jump:
            with_gtids(f"{A}:1-7", (f"{A}:9",))
            with_gtids("5-1-7", ("5-1-8",))
