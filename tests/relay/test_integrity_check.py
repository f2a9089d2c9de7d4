"""Whatever byte of a relay is changed, `pidts relay list --verify` reports where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.relay import RelayWriter
from pidts.relay.integrity_check import Damage, broken
from pidts.relay.segments.index import payloads
from pidts.relay.survey import source_ids, survey

from .sample_log import FORMAT, START, UUID, Piece

MakeWriter = Callable[..., RelayWriter]


def found(relay: Path) -> list[Damage]:
    return list(broken(relay, "s"))


def test_a_written_relay_has_no_damage(relay: Path, log: list[Piece]) -> None:
    assert found(relay) == []
    assert found(relay / "absent") == []


def test_every_changed_byte_is_found_and_named(relay: Path, log: list[Piece]) -> None:
    growing = max(relay.glob("s/*.index"))
    for path in sorted(relay.glob("s/0*")):
        data = path.read_bytes()
        # A last record of the last segment that is half written is not damage: the next writer cuts it off.
        end = [0, *(at for at, _ in payloads(data))][-2] if path == growing else len(data)
        for at in range(0, end, 11):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
            damage = found(relay)
            assert damage, f"byte {at} of {path.name}"
            assert {one.segment for one in damage} <= {int(path.stem), int(path.stem) + 1}
            assert damage[0].byte <= at
        path.write_bytes(data)
    assert found(relay) == []


def test_the_place_is_the_damaged_event_s(relay: Path, log: list[Piece]) -> None:
    path = relay / "s" / "000000001.log"
    data = bytearray(path.read_bytes())
    second_event = 4 + len(FORMAT) + len((log[0].events + log[1].events)[0])
    data[second_event + 20] ^= 1
    path.write_bytes(data)
    assert [(one.file, one.byte) for one in found(relay)] == [(str(path), second_event)]
    assert "bad-checksum" in found(relay)[0].what


@pytest.mark.parametrize("name", ["000000002.index", "000000002.log"])
def test_a_missing_file_is_found(relay: Path, log: list[Piece], name: str) -> None:
    (relay / "s" / name).unlink()
    assert ["missing" in one.what for one in found(relay)] == [True]


def test_a_short_file_is_found_but_the_tail_of_the_last_segment_is_only_unfinished(
    relay: Path, log: list[Piece]
) -> None:
    first, last = sorted(relay.glob("s/*.index"))[:: len(list(relay.glob("s/*.index"))) - 1]
    for path, count in ((first, 1), (last, 0)):
        data = path.read_bytes()
        path.write_bytes(data[:-1])
        assert (len(found(relay)) >= 1) == bool(count), path
        path.write_bytes(data)
    events = last.with_suffix(".log")
    events.write_bytes(events.read_bytes() + b"half an event")
    assert found(relay) == []
    events.write_bytes(events.read_bytes()[:-20])
    assert ["ends before" in one.what for one in found(relay)] == [True]


def test_records_that_are_gone_as_a_whole_from_the_end_of_an_index_are_found(relay: Path, log: list[Piece]) -> None:
    """The rest of the index is valid by itself; only the next segment shows that something is missing."""
    index = relay / "s" / "000000001.index"
    data = index.read_bytes()
    *_, last, _ = [at for at, _ in payloads(data)]
    index.write_bytes(data[:last])
    (damage,) = found(relay)
    assert (damage.file, damage.byte) == (str(relay / "s" / "000000002.index"), 0)
    assert "but the previous segment ends at" in damage.what


def test_a_survey_names_places_gtids_times_and_sizes(relay: Path, log: list[Piece]) -> None:
    segments = survey(relay, "s")
    assert sum(segment.entries for segment in segments) == 12
    assert [segment.start for segment in segments] == [START, *(segment.end for segment in segments[:-1])]
    assert segments[-1].end == log[-1].transaction.lsn
    assert str(segments[-1].position) == f"bin.000001:{segments[-1].end.offset}"
    assert (segments[0].first_gtid, segments[-1].last_gtid) == (f"{UUID}:1", f"{UUID}:12")
    assert (segments[0].first_time, segments[-1].last_time) == (1_700_000_001, 1_700_000_012)
    assert sum(segment.log_bytes for segment in segments) == sum(path.stat().st_size for path in relay.glob("s/*.log"))
    assert source_ids(relay) == ["s"]
