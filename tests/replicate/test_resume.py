"""A replicator continues at the place where its relay ends, and refuses to continue in a log that may be another one."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pidts.model import Halted, LogFile, Lsn, Position, Where, parse_gtid_set
from pidts.model.errors import Transient
from pidts.relay import Origin, RelayState
from pidts.relay.refetch import Refetch, Refetches
from pidts.replicate.resume import (
    AppliedPlace,
    SourceState,
    check_fetched_again,
    check_not_outdated,
    check_same_file,
    first_start,
    resume,
    start_again,
)

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SERVER = SourceState("mysql " + A, False, True, (("bin.000003", 900), ("bin.000004", 500)))
STATE = RelayState(
    lsn=Lsn(0, 4, 300),
    origin=Origin("mysql " + A, "bin", 0),
    gtid_set=f"{A}:1-7",
    format_event=b"",
    segment=2,
    start=Lsn(0, 4, 4),
)
HERE = Where(source="s")


def test_the_same_server_continues_by_position() -> None:
    assert resume(STATE, SERVER, use_gtid=False, where=HERE).start == Position("bin.000004", 300)
    assert resume(STATE, SERVER, use_gtid=False, where=HERE).begin is None


def test_or_by_gtid_if_that_is_wanted() -> None:
    assert resume(STATE, SERVER, use_gtid=True, where=HERE).start == parse_gtid_set(f"{A}:1-7")


def test_beyond_four_gigabytes_only_gtid_can_continue() -> None:
    far = replace(STATE, lsn=Lsn(0, 4, 2**32 + 5))
    server = replace(SERVER, logs=(("bin.000004", 2**33),))
    assert resume(far, server, use_gtid=False, where=HERE).start == parse_gtid_set(f"{A}:1-7")


@pytest.mark.parametrize(
    "logs",
    [
        (("bin.000004", 299),),  # The source was restored from a backup, or it has lost its last writes.
        (("bin.000001", 10_000),),  # RESET MASTER has removed the log.
    ],
)
@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_log_that_is_shorter_than_it_was_halts(logs: tuple[tuple[str, int], ...], use_gtid: bool) -> None:
    with pytest.raises(Halted) as caught:
        resume(STATE, replace(SERVER, logs=logs), use_gtid=use_gtid, where=HERE)
    assert caught.value.code == "source-went-back"
    assert "bin.000004:300" in caught.value.what


def test_where_a_purged_file_was_all_read_gtids_know_the_next_one() -> None:
    later = replace(SERVER, logs=(("bin.000006", 10),))
    assert resume(STATE, later, use_gtid=False, where=HERE).start == parse_gtid_set(f"{A}:1-7")


def test_without_gtids_a_purged_log_is_left_to_the_server_to_refuse() -> None:
    later = replace(SERVER, logs=(("bin.000006", 10),), gtid_mode=False)
    assert resume(STATE, later, use_gtid=False, where=HERE).start == Position("bin.000004", 300)


@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_log_with_another_event_before_our_position_halts(use_gtid: bool) -> None:
    with pytest.raises(Halted) as caught:
        resume(STATE, replace(SERVER, has_last_event=False), use_gtid=use_gtid, where=HERE)
    assert caught.value.code == "source-went-back"
    assert resume(STATE, replace(SERVER, has_last_event=True), use_gtid=False, where=HERE).begin is None


MARIADB = SourceState("mariadb server-id 7 at here", True, True, (("bin.000004", 500),), None, "0-7-9")
RECEIVED = replace(STATE, origin=Origin("mariadb server-id 7 at here", "bin", 3), lsn=Lsn(3, 4, 300), gtid_set="0-7-8")


def test_a_mariadb_in_a_new_container_is_the_same_if_its_log_proves_it() -> None:
    moved = replace(MARIADB, identity="mariadb server-id 7 at there", has_last_event=True)
    found = resume(RECEIVED, moved, use_gtid=False, where=HERE)
    assert (found.start, found.begin, found.begin_lsn) == (
        Position("bin.000004", 300), Origin("mariadb server-id 7 at there", "bin", 4), Lsn(3, 4, 300),
    )  # fmt: skip
    fresh = replace(RECEIVED, start=RECEIVED.lsn)
    assert resume(fresh, replace(moved, has_last_event=None), use_gtid=False, where=HERE).begin is not None


@pytest.mark.parametrize("proven", [False, None])
def test_a_mariadb_with_a_borrowed_server_id_is_another_server(proven: bool | None) -> None:
    other = replace(MARIADB, identity="mariadb server-id 7 at there", has_last_event=proven)
    with pytest.raises(Halted) as caught:
        resume(RECEIVED, other, use_gtid=False, where=HERE)
    assert caught.value.code == "other-source"
    assert resume(RECEIVED, other, use_gtid=True, where=HERE).start == parse_gtid_set("0-7-8")


APPLIED = AppliedPlace(Lsn(2, 4, 300), "bin.000004:300", f"{A}:3-7")


def test_a_lost_relay_begins_at_the_checkpoint_and_counts_on() -> None:
    for found in (f"{A}:1-7", None):
        resumed = start_again(SERVER, APPLIED, found, use_gtid=False, where=HERE)
        assert (resumed.start, resumed.begin, resumed.begin_lsn, resumed.gtid_set) == (
            Position("bin.000004", 300), Origin(SERVER.identity, "bin", 2), APPLIED.lsn, found,
        )  # fmt: skip
    by_gtid = start_again(SERVER, APPLIED, f"{A}:1-7", use_gtid=True, where=HERE)
    assert (by_gtid.start, by_gtid.begin) == (parse_gtid_set(f"{A}:1-7"), Origin(SERVER.identity, "bin", 2))


@pytest.mark.parametrize(
    ("position", "found"),
    [
        ("bin.000004:300", f"{A}:1-6"),  # This log has other transactions before that byte.
        ("bin.000004:300", f"{A}:1-8"),  # This log has one transaction more, which would be left out.
        ("bin.000004:900", None),  # This log has no such byte.
        ("bin.000004:300", None),  # The GTIDs before this byte are unknown.
        ("old.000004:300", None),
        ("", None),
    ],
)
def test_a_lost_relay_and_a_new_server_need_gtid(position: str, found: str | None) -> None:
    server = replace(SERVER, executed=f"{A}:1-9")
    resumed = start_again(server, replace(APPLIED, position=position), found, use_gtid=True, where=HERE)
    assert (resumed.start, resumed.begin, resumed.begin_lsn) == (
        parse_gtid_set(APPLIED.gtid_set), Origin(server.identity, "bin", 3), APPLIED.lsn,
    )  # fmt: skip
    with pytest.raises(Transient) as behind:
        start_again(
            replace(server, executed=f"{A}:1-6"), replace(APPLIED, position=""), None, use_gtid=True, where=HERE
        )
    assert behind.value.code == "source-behind"


@pytest.mark.parametrize(
    ("position", "found", "code"),
    [
        ("bin.000004:300", f"{A}:1-6", "other-source"),
        ("old.000004:300", None, "other-source"),
        ("bin.000004:900", None, "source-went-back"),
        ("bin.000009:4", None, "source-went-back"),
    ],
)
def test_a_lost_relay_without_gtid_trusts_no_other_log(position: str, found: str | None, code: str) -> None:
    with pytest.raises(Halted) as caught:
        start_again(SERVER, replace(APPLIED, position=position), found, use_gtid=False, where=HERE)
    assert caught.value.code == code


def test_a_lost_relay_begins_again_on_a_server_that_was_made_from_a_backup() -> None:
    """Without GTIDs as the way to continue, too: the log's sets do not have the transactions of the backup."""
    applied = replace(APPLIED, gtid_set=f"{A}:3-7,{B}:1-100")
    resumed = start_again(SERVER, applied, f"{A}:1-7", use_gtid=False, where=HERE)
    assert (resumed.start, resumed.begin_lsn) == (Position("bin.000004", 300), APPLIED.lsn)
    with pytest.raises(Halted, match="does not match the target's checkpoint"):
        start_again(SERVER, applied, f"{A}:1-6", use_gtid=False, where=HERE)


FILE = LogFile("bin.000004", 1_800_000_000, 7, SERVER.identity)
ANEW = replace(FILE, created=FILE.created + 60)


@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_lost_relay_begins_only_in_the_log_file_of_the_checkpoint(use_gtid: bool) -> None:
    """The new log has a transaction's end at the checkpoint's place, and the same GTIDs before this place."""
    applied, found = replace(APPLIED, log_file=FILE), f"{A}:1-7"
    same = start_again(SERVER, applied, found, FILE, use_gtid=use_gtid, where=HERE)
    assert same == start_again(SERVER, APPLIED, found, use_gtid=use_gtid, where=HERE)
    with pytest.raises(Halted) as caught:
        start_again(SERVER, applied, found, ANEW, use_gtid=use_gtid, where=HERE)
    assert caught.value.code == "source-went-back"
    assert "08:00:00" in caught.value.what
    assert "08:01:00" in caught.value.what


@pytest.mark.parametrize(
    ("position", "known", "there"),
    [
        ("bin.000009:4", replace(FILE, name="bin.000008"), None),  # the log was reset, and has fewer files
        ("bin.000004:900", FILE, FILE),  # the server has lost the end of the file, and has begun another file
    ],
)
@pytest.mark.parametrize("use_gtid", [False, True])
def test_a_lost_relay_does_not_begin_if_the_same_server_has_lost_log(
    position: str, known: LogFile, there: LogFile | None, use_gtid: bool
) -> None:
    """By GTID, another log with as many transactions seems to continue the checkpoint."""
    applied = replace(APPLIED, position=position, log_file=known)
    server = replace(SERVER, executed=f"{A}:1-9")
    with pytest.raises(Halted) as caught:
        start_again(server, applied, None, there, use_gtid=use_gtid, where=HERE)
    assert caught.value.code == "source-went-back"


@pytest.mark.parametrize(
    ("known", "there"),
    [
        (None, ANEW),  # an earlier version stored the checkpoint
        (replace(FILE, name="bin.000003"), replace(FILE, name="bin.000003")),  # the checkpoint is at this file's end
        (replace(FILE, name="bin.000002"), None),  # the server has purged the file, or its head cannot be read
        (FILE, None),
        (replace(FILE, name="old.000009"), None),  # the server was given another name for its log files
        (replace(FILE, server="mysql " + B), FILE),  # a server with copies of the other server's log files
        (replace(FILE, server="mysql " + B, name="bin.000009"), None),
    ],
)
@pytest.mark.parametrize("use_gtid", [False, True])
def test_no_other_log_file_keeps_a_lost_relay_from_beginning(
    known: LogFile | None, there: LogFile | None, use_gtid: bool
) -> None:
    resumed = start_again(SERVER, replace(APPLIED, log_file=known), f"{A}:1-7", there, use_gtid=use_gtid, where=HERE)
    assert resumed == start_again(SERVER, APPLIED, f"{A}:1-7", use_gtid=use_gtid, where=HERE)


def test_a_position_in_another_servers_file_means_nothing() -> None:
    """The servers' log files have the same names. By GTID, the task continues as after any failover."""
    applied = replace(APPLIED, log_file=replace(ANEW, server="mysql " + B))
    server = replace(SERVER, executed=f"{A}:1-9")
    with pytest.raises(Halted) as caught:
        start_again(server, applied, f"{A}:1-7", FILE, use_gtid=False, where=HERE)
    assert caught.value.code == "other-source"
    resumed = start_again(server, applied, f"{A}:1-7", FILE, use_gtid=True, where=HERE)
    assert (resumed.start, resumed.begin) == (parse_gtid_set(APPLIED.gtid_set), Origin(server.identity, "bin", 3))


def test_a_relay_that_was_left_behind_is_not_filled_up() -> None:
    check_not_outdated(Origin("s", "bin", 2), APPLIED, HERE)
    with pytest.raises(Halted) as caught:
        check_not_outdated(Origin("s", "bin", 1), APPLIED, HERE)
    assert caught.value.code == "relay-outdated"


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


def test_after_a_change_without_any_event_there_is_no_position_to_continue_from() -> None:
    changed = replace(STATE, origin=Origin(SERVER.identity, "bin", 1))
    assert resume(changed, SERVER, use_gtid=False, where=HERE).start == parse_gtid_set(f"{A}:1-7")
    with pytest.raises(Halted):
        resume(replace(changed, gtid_set=None), SERVER, use_gtid=True, where=HERE)


def test_an_empty_relay_begins_at_the_end_of_the_log_or_where_the_task_file_says() -> None:
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


def test_a_log_file_is_recognized_by_its_creation_time_and_server() -> None:
    known = format_event(1000, 7, "10.11", 1)
    check_same_file(known, format_event(1000, 7, "10.11", 2), HERE)
    for other in (format_event(1001, 7, "10.11", 1), format_event(1000, 8, "10.11", 1), format_event(1000, 7, "11", 1)):
        with pytest.raises(Halted) as caught:
            check_same_file(known, other, HERE)
        assert caught.value.code == "source-went-back"


def test_no_other_server_takes_over_in_the_middle_of_what_is_fetched_again() -> None:
    """Otherwise a task that is ahead of the relay would get applied changes again, at the places of another server."""
    behind = Refetches(done=(Refetch(Lsn(0, 3, 4), Lsn(0, 4, 300), "relay-gap"),))
    check_fetched_again(STATE, behind, HERE)
    ahead = Refetches(done=(*behind.done, Refetch(Lsn(0, 4, 100), Lsn(0, 4, 301), "relay-gap")))
    with pytest.raises(Halted) as caught:
        check_fetched_again(STATE, ahead, HERE)
    assert caught.value.code == "relay-gap"
