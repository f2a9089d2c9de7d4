"""The planner reads the signals of schema changes again and again, while a thousand of them may wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.examples import seeds

from pidts.ddl.planner_signals import Signals, signal_done, signal_halted, signal_kept
from pidts.model import Lsn, TableName


@pytest.mark.parametrize("seed", seeds(12))
def test_a_reader_that_parses_each_signal_once_finds_all_signals(tmp_path: Path, seed: str) -> None:
    chosen, signals = random.Random(seed), Signals(tmp_path)
    changes = [Lsn(0, 1, 100 * number) for number in range(40)]
    signalled: dict[object, set[Lsn]] = {signal_done: set(), signal_halted: set()}
    for _ in range(60):
        signal, lsn = chosen.choice([signal_done, signal_halted]), chosen.choice(changes)
        signal(tmp_path, lsn)
        signalled[signal].add(lsn)
        signal_kept(tmp_path, [TableName("shop", "a.done")])
        due = frozenset(chosen.sample(changes, chosen.choice([0, 3, 16, 17, 40])))
        done = signalled[signal_done] & due
        for reader in (signals, Signals(tmp_path)):
            assert reader.done(due) == done
            assert reader.halted(due) == (signalled[signal_halted] & due) - done


def test_a_signal_is_parsed_once(tmp_path: Path) -> None:
    changes = frozenset(Lsn(0, 1, 100 * number) for number in range(300))
    for lsn in changes:
        signal_halted(tmp_path, lsn)
    parsed: list[str] = []

    def parse(text: str) -> Lsn:
        parsed.append(text)
        return Lsn.parse(text)

    signals = Signals(tmp_path, parse)
    for _ in range(3):
        assert signals.halted(changes) == changes
        assert not signals.done(changes)
    assert len(parsed) == len(changes)
