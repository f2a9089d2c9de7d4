"""Tables without a key: any history of many rows, in any batches, leaves the source's rows, each as often as there.

The rows have duplicates, NULLs, and texts that a collation treats as equal; updates turn one duplicate into another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.examples import seeds
from tests.target.conformance.samples import INT, create, text
from tests.target.conformance.servers.test_mysql_histories import Change, Row, apply, content
from tests.target.conformance.servers.test_mysql_keyless import keyless

from pidts.model import ColumnType, Key, Kind, Op, TableName

_TEXTS = [None, "", "a", "A", "a ", "é", "e"]


def some_row(random: Random) -> Row:
    return random.choice([None, *range(90)]), random.choice(_TEXTS), random.choice([None, 0.1, 1.5])


def history(random: Random, length: int, grows: float) -> tuple[list[Change], list[Row]]:
    """Returns changes that a source could have made, and its rows at the end; `grows` is the share of the inserts."""
    there: list[Row] = []
    changes: list[Change] = []
    for _ in range(length):
        if not there or random.random() < grows:
            new = random.choice(there) if there and random.random() < 0.3 else some_row(random)
            there.append(new)
            changes.append((Op.INSERT, None, new))
            continue
        place = random.randrange(len(there))
        old = there[place]
        if random.random() < 0.5:
            there[place] = there[-1]
            there.pop()
            changes.append((Op.DELETE, old, None))
        else:
            there[place] = random.choice(there) if random.random() < 0.4 else (old[0], *some_row(random)[1:])
            changes.append((Op.UPDATE, old, there[place]))
    return changes, there


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "postgres"])
@pytest.mark.parametrize("indexed", [True, False])
def test_any_history_of_many_rows(session: Any, name: TableName, kind: str, indexed: bool) -> None:
    columns = {"a": INT, "b": text(), "d": ColumnType(Kind.DOUBLE)}
    made = keyless(name, columns)
    if indexed:
        made = replace(made, keys=(Key("by_a", ("a", "d")),))
    create(session, made)
    used = False
    for place, seed in enumerate(seeds(8)):
        random = Random(f"{seed} {kind} {indexed}")
        # The first table grows fast, so that one of its batches has enough new rows for row events.
        changes, rows = history(random, 3000, random.uniform(0.3, 0.8) if place else 0.8)
        apply(session, made, [(Op.DELETE, row, None) for row in content(session, made)], lambda: 10_000)
        apply(session, made, changes, lambda random=random: random.choice([random.randint(1, 60), 1000]))
        assert Counter(content(session, made)) == Counter(rows), seed
        used |= kind == "mariadb" and session.rows("SHOW SESSION STATUS LIKE 'Com_binlog'")[0][1] != "0"
    assert used == (kind == "mariadb")
