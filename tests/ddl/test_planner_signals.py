"""The planner reads the signals of schema changes again and again, while a thousand of them may wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.examples import seeds

from pidts.ddl.planner_signals import Signals, done_of, halted_of, signal_done, signal_halted, signal_kept
from pidts.model import Lsn, TableName


@pytest.mark.parametrize("seed", seeds(12))
def test_a_reader_that_parses_each_signal_once_finds_what_a_new_reader_does(tmp_path: Path, seed: str) -> None:
    chosen, signals = random.Random(seed), Signals(tmp_path)
    changes = [Lsn(0, 1, 100 * number) for number in range(40)]
    for _ in range(60):
        chosen.choice([signal_done, signal_halted])(tmp_path, chosen.choice(changes))
        signal_kept(tmp_path, [TableName("shop", "a.done")])
        due = frozenset(chosen.sample(changes, chosen.choice([0, 3, 16, 17, 40])))
        assert signals.done(due) == done_of(tmp_path, due)
        assert signals.halted(due) == halted_of(tmp_path, due)


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
