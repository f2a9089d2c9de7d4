"""A decoder that is kept from slice to slice gives what a new decoder for each slice gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.binlog.logs.scenarios import Recording, kept, load
from tests.binlog.logs.twins import Outcome, disagreement, early_filter
from tests.binlog.test_transactions import one_by_one

from pidts.binlog import KeptDecoder, decode_slice, iter_raw
from pidts.binlog.decode import new_decoder
from pidts.binlog.kernel import routed
from pidts.model import Halted, Position, TableName

pytestmark = pytest.mark.usefixtures("kernel")

CASES = [name for name in kept() if load(name).tables]


def slices(recording: Recording, chance: random.Random) -> Iterator[tuple[bytes, int]]:
    """Returns slices of the first log file: one or a few whole transactions each, with the byte at which they begin."""
    events = [bytes(raw) for raw in iter_raw(recording.events)]
    found = [
        (transaction.begin, b"".join(events[first:behind]))
        for transaction, first, behind in one_by_one(events, Position(recording.log_file, 4))
        if transaction.begin.log_index == transaction.lsn.log_index
    ]
    found = [one for one in found if one[0].log_index == found[0][0].log_index]
    while found:
        count = chance.choice([1, 1, 2, 5])
        yield b"".join(raw for _, raw in found[:count]), found[0][0].offset
        found = found[count:]


def facts(recording: Recording) -> dict[str, Any]:
    return {
        "format": recording.format,
        "log_file": recording.log_file,
        "change_no": 3,
        "structures": recording.structures,
    }


def in_order(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Halted) else sorted(outcome, key=lambda batch: batch.table.name)


def compared(recording: Recording, chance: random.Random, decoder: KeptDecoder, **how: Any) -> int:
    """Checks that the kept decoder decodes each slice like a new one. Returns the number of rows of all slices."""
    rows = 0
    for raw, offset in slices(recording, chance):
        expected = decode_slice(raw, offset=offset, **facts(recording), **how)
        found = decoder.decode_slice(raw, offset=offset, **facts(recording), **how)
        assert disagreement(in_order(found), in_order(expected)) is None
        rows += sum(map(len, found))
    return rows


@pytest.mark.parametrize("name", CASES)
def test_slices_one_after_the_other(name: str) -> None:
    recording, decoder = load(name), KeptDecoder()
    for seed in range(2):
        assert compared(recording, random.Random(seed), decoder) > 0


@pytest.mark.parametrize("name", CASES)
def test_later_slices_do_not_change_earlier_batches(name: str) -> None:
    """The rows of small slices are written to the same memory, of which each batch has a copy."""
    recording, decoder = load(name), KeptDecoder()
    found, expected = [], []
    for raw, offset in slices(recording, random.Random(1)):
        expected.append(decode_slice(raw, offset=offset, **facts(recording)))
        found.append(decoder.decode_slice(raw, offset=offset, **facts(recording)))
    for kept_batches, batches in zip(found, expected, strict=True):
        assert disagreement(in_order(kept_batches), in_order(batches)) is None


@pytest.mark.parametrize("name", CASES[:4])
def test_slices_with_an_early_filter(name: str) -> None:
    recording, decoder = load(name), KeptDecoder()
    for seed in range(2):
        compared(recording, random.Random(seed), decoder, early_filter_of=early_filter)


@pytest.mark.parametrize("name", CASES[:4])
def test_a_damaged_slice_between_others(name: str) -> None:
    """The rows that were read before the damage are in no later slice."""
    recording, decoder, chance = load(name), KeptDecoder(), random.Random(1)
    damaged = 0
    for raw, offset in slices(recording, chance):
        broken = bytearray(raw)
        broken[-1 - chance.randrange(min(60, len(raw) - 19))] ^= 0x10
        outcomes = []
        for decode in (decode_slice, decoder.decode_slice):
            try:
                outcomes.append(decode(bytes(broken), offset=offset, **facts(recording)))
            except Halted as error:
                outcomes.append(error)
                damaged += 1
        assert disagreement(*map(in_order, reversed(outcomes))) is None
        assert (
            disagreement(
                in_order(decoder.decode_slice(raw, offset=offset, **facts(recording))),
                in_order(decode_slice(raw, offset=offset, **facts(recording))),
            )
            is None
        )
    assert damaged


def test_a_decoder_is_kept_and_its_number_of_tables_is_limited(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, made = load(CASES[0]), []

    def counted(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        return new_decoder(*arguments, **options)

    monkeypatch.setattr("pidts.binlog.decode.new_decoder", counted)
    cut = list(slices(recording, random.Random(1)))
    assert len(cut) > 3

    def all_made(**changed: Any) -> int:
        made.clear()
        decoder = KeptDecoder()
        for number, (raw, offset) in enumerate(cut):
            decoder.decode_slice(raw, offset=offset, **facts(recording) | {n: of(number) for n, of in changed.items()})
        return len(made)

    assert all_made() == (1 if kernel == "compiled" else len(cut))
    assert all_made(change_no=lambda number: number) == len(cut)
    monkeypatch.setattr(routed, "_MOST_KEPT", 0)
    with_rows = sum(bool(decode_slice(raw, offset=offset, **facts(recording))) for raw, offset in cut)
    assert all_made() >= (with_rows if kernel == "compiled" else len(cut))


@pytest.mark.parametrize("kernel", ["compiled"], indirect=True)
def test_tables_come_in_the_order_of_their_first_rows() -> None:
    """They come in this order even if the kept decoder has met the tables in another order before."""
    recording = load(next(name for name in CASES if len(load(name).structures) > 1 and name.endswith("transactions")))
    decoder = KeptDecoder()
    orders: set[tuple[TableName, ...]] = set()
    for seed in range(3):
        for raw, offset in slices(recording, random.Random(seed)):
            found = decoder.decode_slice(raw, offset=offset, **facts(recording))
            firsts = [batch.rows.column("lsn")[0].as_py() for batch in found]
            assert firsts == sorted(firsts)
            orders.add(tuple(batch.table.name for batch in found))
    assert any(len(order) > 1 for order in orders)
