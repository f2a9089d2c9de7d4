"""Where a replicator goes on, and where it refuses to."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pidts.model import Halted, Lsn, Position, Where, parse_gtid_set
from pidts.model.errors import Transient
from pidts.relay import Origin, RelayState
from pidts.replicate.resume import Server, check_same_file, first_start, resume

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SERVER = Server("mysql " + A, False, True, (("bin.000003", 900), ("bin.000004", 500)))
STATE = RelayState(
    lsn=Lsn(0, 4, 300),
    origin=Origin("mysql " + A, "bin", 0),
    gtid_set=f"{A}:1-7",
    format_event=b"",
    segment=2,
    start=Lsn(0, 4, 4),
)
HERE = Where(source="s")


def test_the_same_server_goes_on_by_position() -> None:
    assert resume(STATE, SERVER, use_gtid=False, where=HERE).start == Position("bin.000004", 300)
    assert resume(STATE, SERVER, use_gtid=False, where=HERE).begin is None


def test_or_by_gtid_if_that_is_wanted() -> None:
    assert resume(STATE, SERVER, use_gtid=True, where=HERE).start == parse_gtid_set(f"{A}:1-7")


def test_behind_four_gigabytes_only_gtid_can_go_on() -> None:
    far = replace(STATE, lsn=Lsn(0, 4, 2**32 + 5))
    server = replace(SERVER, logs=(("bin.000004", 2**33),))
    assert resume(far, server, use_gtid=False, where=HERE).start == parse_gtid_set(f"{A}:1-7")


@pytest.mark.parametrize(
    "logs",
    [
        (("bin.000004", 299),),  # restored from a backup, or its last writes were lost
        (("bin.000001", 10_000),),  # RESET MASTER
    ],
)
@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_log_that_is_shorter_than_it_was_halts(logs: tuple[tuple[str, int], ...], use_gtid: bool) -> None:
    with pytest.raises(Halted) as caught:
        resume(STATE, replace(SERVER, logs=logs), use_gtid=use_gtid, where=HERE)
    assert caught.value.code == "source-went-back"
    assert "bin.000004:300" in caught.value.what


def test_a_purged_log_is_left_to_the_server_to_refuse() -> None:
    later = replace(SERVER, logs=(("bin.000006", 10),))
    assert resume(STATE, later, use_gtid=False, where=HERE).start == Position("bin.000004", 300)


OTHER = replace(SERVER, identity="mysql " + B, executed=f"{A}:1-9,{B}:1", logs=(("mysql-bin.000001", 77),))


@pytest.mark.parametrize("changes", [{"gtid_set": None}, {}])
def test_another_server_needs_gtid(changes: dict[str, None]) -> None:
    with pytest.raises(Halted) as caught:
        resume(replace(STATE, **changes), OTHER, use_gtid=bool(changes), where=HERE)
    assert caught.value.code == "other-source"
    assert ("enable-gtid" in caught.value.todo) is not bool(changes)


def test_another_server_raises_the_change_number() -> None:
    found = resume(STATE, OTHER, use_gtid=True, where=HERE)
    assert found.begin == Origin("mysql " + B, "mysql-bin", 1)
    assert found.begin_lsn == STATE.lsn
    assert found.start == parse_gtid_set(f"{A}:1-7")


def test_a_renamed_log_counts_as_another_server() -> None:
    renamed = replace(SERVER, logs=(("new.000001", 500),), executed=f"{A}:1-9")
    found = resume(STATE, renamed, use_gtid=True, where=HERE)
    assert found.begin == Origin("mysql " + A, "new", 1)


def test_another_server_that_lacks_transactions_is_waited_for() -> None:
    with pytest.raises(Transient) as caught:
        resume(STATE, replace(OTHER, executed=f"{A}:1-6"), use_gtid=True, where=HERE)
    assert caught.value.code == "source-behind"


def test_after_a_change_without_any_event_there_is_no_position_to_go_on_from() -> None:
    changed = replace(STATE, origin=Origin(SERVER.identity, "bin", 1))
    assert resume(changed, SERVER, use_gtid=False, where=HERE).start == parse_gtid_set(f"{A}:1-7")
    with pytest.raises(Halted):
        resume(replace(changed, gtid_set=None), SERVER, use_gtid=True, where=HERE)


def test_an_empty_relay_begins_at_the_end_of_the_log_or_where_it_is_told() -> None:
    server = replace(SERVER, position=Position("bin.000004", 500), executed=f"{A}:1-9")
    found = first_start(server, None, None, use_gtid=False)
    assert (found.start, found.begin_lsn, found.gtid_set) == (server.position, Lsn(0, 4, 500), f"{A}:1-9")
    assert first_start(server, None, None, use_gtid=True).start == parse_gtid_set(f"{A}:1-9")
    asked = first_start(server, Position("bin.000003", 4), None, use_gtid=False)
    assert (asked.begin_lsn, asked.gtid_set) == (Lsn(0, 3, 4), None)
    by_gtid = first_start(server, f"{A}:1-2", None, use_gtid=False)
    assert (by_gtid.start, by_gtid.begin_lsn) == (parse_gtid_set(f"{A}:1-2"), None)


def format_event(created: int, server_id: int, version: str, rest: int) -> bytes:
    return struct.pack("<IBIIIH", created, 15, server_id, 0, rest, 0) + b"\4\0" + version.encode().ljust(50, b"\0")


def test_a_file_is_known_by_its_birth() -> None:
    known = format_event(1000, 7, "10.11", 1)
    check_same_file(known, format_event(1000, 7, "10.11", 2), HERE)
    for other in (format_event(1001, 7, "10.11", 1), format_event(1000, 8, "10.11", 1), format_event(1000, 7, "11", 1)):
        with pytest.raises(Halted) as caught:
            check_same_file(known, other, HERE)
        assert caught.value.code == "source-went-back"
