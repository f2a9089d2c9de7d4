"""For all bytes, the decoder returns rows or raises an error of PiDTS; any other exception fails these tests."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.binlog.logs import fuzz
from tests.binlog.logs.scenarios import Recording, kept, load
from tests.examples import examples

from pidts.binlog import LogWalker, TransactionScanner, decode_slice, iter_raw
from pidts.binlog.values import json
from pidts.model import Halted, Lsn

CASES = [name for name in kept() if load(name).tables]


@cache
def unsealed(name: str) -> tuple[Recording, list[bytes]]:
    """Returns a recording as a server without checksums would have sent it, so that the decoder gets damaged bytes."""
    recording = load(name)
    pieces = [bytes(raw) for raw in iter_raw(recording.events)]
    first, rest = pieces[0], pieces[1:]
    tail = 4 * first[-5]
    first = first[:-5] + b"\0" + first[-4:]
    plain = [first]
    for raw in rest:
        if raw[4] == 15:
            break
        size = len(raw) - tail
        plain.append(raw[:9] + size.to_bytes(4, "little") + bytes(4) + raw[17:size])
    return recording, plain


def run(recording: Recording, raw: bytes) -> None:
    walker = LogWalker(recording.log_file)
    walker.feed(next(iter_raw(raw)))
    for batch in decode_slice(
        raw, format=walker.format, log_file=recording.log_file, change_no=0, structures=recording.structures
    ):
        batch.rows.validate(full=True)


@pytest.mark.parametrize("name", CASES)
def test_without_damage_all_is_well(name):
    recording, pieces = unsealed(name)
    run(recording, b"".join(pieces))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_damaged_events_give_rows_or_an_error(name, data):
    recording, pieces = unsealed(name)
    pieces = list(pieces)
    number = data.draw(st.integers(1, len(pieces) - 1))
    event = bytearray(pieces[number])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(event), 4000) - 1))
        event[place] = data.draw(st.integers(0, 255))
    pieces[number] = bytes(event)
    with suppress(Halted):
        run(recording, b"".join(pieces))


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("transactions")])
@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_events_cut_short_give_rows_or_an_error(name, data):
    recording, pieces = unsealed(name)
    pieces = list(pieces)
    number = data.draw(st.integers(1, len(pieces) - 1))
    size = data.draw(st.integers(19, len(pieces[number])))
    pieces[number] = pieces[number][:9] + size.to_bytes(4, "little") + pieces[number][13:size]
    start = Lsn(0, int(recording.log_file.partition(".")[2]), 4)
    walker, scanner = LogWalker(recording.log_file), TransactionScanner(0, start)
    with suppress(Halted):
        run(recording, b"".join(pieces))
    with suppress(Halted):
        for raw in pieces:
            scanner.feed(walker.feed(raw))


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from(range(16)), st.binary(max_size=80))
def test_any_bytes_as_json_give_text_or_an_error(kind, body):
    with suppress(Halted):
        assert json.text(bytes([kind]) + body)


@settings(max_examples=examples(80), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_log_give_an_error(raw):
    walker = LogWalker("bin.000001")
    with suppress(Halted):
        for piece in iter_raw(raw):
            walker.feed(piece)


@pytest.fixture
def separate():
    compiled = fuzz.Compiled()
    yield compiled
    compiled.stop()


@pytest.mark.slow
def test_damaged_logs_give_the_same_from_compiled_and_from_plain_code(separate):
    """Does for a few seconds what `python -m tests.binlog.logs.fuzz` does for longer."""
    report = fuzz.run(6, 7, separate)
    assert not report.findings, str(report)
    assert report.rows > 0
    assert report.corpus > len(fuzz.seeds())


def test_a_crash_of_compiled_code_is_found():
    dies = "import os, signal; os.read(0, 1); os.kill(os.getpid(), signal.SIGSEGV)"
    compiled = fuzz.Compiled((sys.executable, "-c", dies))
    report = fuzz.run(30, 7, compiled, most=1)
    compiled.stop()
    assert [finding.what for finding in report.findings] == ["compiled code ended its process with -11"]


def test_rows_that_compiled_code_loses_are_found():
    loses = "from tests.binlog import fuzz; fuzz.Sample.decode = lambda *_: []; fuzz.serve()"
    compiled = fuzz.Compiled((sys.executable, "-c", loses))
    report = fuzz.run(30, 7, compiled, most=1)
    compiled.stop()
    assert len(report.findings) == 1
