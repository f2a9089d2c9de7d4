"""A replicator registers at a source as a replica."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Halted, MySqlGtidSet, PrecheckFailed, Where
from pidts.model.errors import Transient
from pidts.source.dump import dump_refusal, encode_gtid_set
from pidts.source.replica import free_id

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@given(seed=st.integers(0, 2**32 - 1), taken=st.sets(st.integers(2**31, 2**31 + 50)))
def test_a_server_id_is_unique_and_in_the_upper_half(seed, taken):
    chosen = free_id(seed, taken)
    assert chosen not in taken
    assert 2**31 <= chosen < 2**32 - 1
    assert chosen == free_id(seed, taken)


def test_a_taken_server_id_moves_us_to_the_next():
    first = free_id(2**31 - 3, set())
    assert free_id(2**31 - 3, {first}) == 2**31


def test_an_empty_gtid_set_is_a_count_of_zero():
    assert encode_gtid_set(MySqlGtidSet()) == bytes(8)


def test_intervals_are_sent_half_open():
    data = encode_gtid_set(MySqlGtidSet.parse(f"{UUID}:1-5:7"))
    assert data == bytes.fromhex(
        "0100000000000000" + UUID.replace("-", "") + "0200000000000000"
        "0100000000000000"
        "0600000000000000"
        "0700000000000000"
        "0800000000000000"
    )


def test_tags_are_announced_in_the_count_and_sent_with_each_member():
    data = encode_gtid_set(MySqlGtidSet.parse(f"{UUID}:1:blue:2"))
    member = bytes.fromhex(UUID.replace("-", ""))
    one, two, three = ((number).to_bytes(8, "little") for number in (1, 2, 3))
    assert data == b"\1\2\0\0\0\0\0\1" + member + b"\0" + one + one + two + member + b"\x08blue" + one + two + three


@pytest.mark.parametrize(
    ("number", "text", "kind", "code"),
    [
        (1236, "Could not find first log file name in binary log index file", Halted, "position-lost"),
        (1236, "Client requested source to start replication from position > file size", Halted, "position-lost"),
        (
            1236,
            "connecting slave requested to start from GTID 0-1-9, which is not in the master's binlog",
            Halted,
            "source-went-back",
        ),
        (
            1236,
            "Replica has more GTIDs than the source has; the last log file was truncated",
            Halted,
            "source-went-back",
        ),
        (
            1236,
            "A slave with the same server_uuid/server_id as this slave has connected to the master",
            Halted,
            "server-id-in-use",
        ),
        (4052, "A slave with the same server_uuid/server_id is already connected", Halted, "server-id-in-use"),
        (1236, "bogus data in log event", Halted, "source-log-unreadable"),
        (1236, "log event entry exceeded max_allowed_packet", Halted, "source-log-unreadable"),
        (1236, "Binary log is not open", Halted, "binlog-off"),
        (1227, "Access denied; you need the REPLICATION SLAVE privilege", PrecheckFailed, "missing-privilege"),
        (1053, "Server shutdown in progress", Transient, "source-lost"),
        (1927, "Connection was killed", Transient, "source-lost"),
    ],
)
def test_each_refusal_says_what_it_means(number, text, kind, code):
    error = dump_refusal(number, text, Where(source="s1"))
    assert type(error) is kind
    assert error.code == code
    assert text in str(error)
    assert error.todo or kind is Transient
