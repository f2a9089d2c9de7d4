"""The events of each key are the same whether the code for few changes or the code for many computes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.target.conformance.locks.test_row_locks import Change, logged
from tests.target.conformance.samples import INT, table, text

from pidts.apply.locks.key_events import KeyEvents, key_events
from pidts.model import Op, TableName
from pidts.reduce import identity

Key = tuple[int, str]


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Returns histories of rows with keys of two columns: they are inserted, changed, moved and deleted."""
    there: set[Key] = set()
    found: list[Change] = []
    for _ in range(draw(st.integers(1, 12))):
        key: Key = (draw(st.integers(0, 2)), draw(st.sampled_from(["a", "A", "", "\u00e4"])))
        old = draw(st.sampled_from(sorted(there))) if there else None
        if old is None or (key not in there and draw(st.booleans())):
            found.append((Op.INSERT, None, (*key, 0)))
            there.add(key)
        elif draw(st.booleans()):
            found.append((Op.DELETE, (*old, 0), None))
            there.remove(old)
        else:
            new = old if key in there else key
            found.append((Op.UPDATE, (*old, 0), (*new, 1)))
            there = there - {old} | {new}
    return found


@pytest.fixture(scope="module", autouse=True)
def _no_limit() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "FEW", identity.FEW)  # Each example changes FEW. The patch restores FEW at the end.
        yield


@pytest.mark.parametrize("names", [("n",), ("s",), ("n", "s")])
@given(changes=histories())
def test_few_changes_have_the_events_of_many(names: tuple[str, ...], changes: list[Change]) -> None:
    structure = table(TableName("d", "t"), {"n": INT, "s": text(), "v": INT}, key=names)
    batch = logged(structure, 1, *changes)
    found = []
    for few in (64, 0):
        identity.FEW = few  # type: ignore[misc]
        found.append(_plain(key_events(batch)))
    assert found[0] == found[1]


def _plain(events: KeyEvents) -> list[Any]:
    numbers = (events.key, events.change, events.leaves, events.arrives, events.first)
    return [events.keys.to_pylist(), events.keys.schema, *(one.tolist() for one in numbers)]
