"""A task begins at an earlier place of the log than the target, as `meta` in a task file allows it.

The target ends as the source, however the log is divided into batches. If the log has only parts of the rows, the table
may halt instead.
"""

from __future__ import annotations

import random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.apply.rows.test_partial_images import history
from tests.apply.table_history import PLAIN, UNIQUE, Change, Row, batch_of, minimal, noblob, rows_of
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, prepared
from pidts.model import Halted, Lsn
from pidts.reduce import Counts, NetChange, with_whole_keys
from pidts.rules import ExpressionFilter, ExpressionRule, Rules

FILTERED = Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop", table="cart", insert="a = 1000"),)))
"""A filter that may have left out rows. In these histories it leaves out none."""


@example(steps=12, size=1, images="minimal", filtered=False, unique=True, seed=0)
@example(steps=14, size=1, images="minimal", filtered=True, unique=True, seed=34)
@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.integers(1, 40),
    size=st.integers(1, 12),
    images=st.sampled_from(["full", "minimal", "noblob"]),
    filtered=st.booleans(),
    unique=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_the_source(
    steps: int, size: int, images: str, *, filtered: bool, unique: bool, seed: int
) -> None:
    chance, table = random.Random(seed), UNIQUE if unique else PLAIN
    rows: dict[int, Row] = {}
    history(table, chance, rows, 8)
    changes: list[Change] = []
    states = [list(rows.values())]
    for _ in range(steps):
        changes += history(table, chance, rows, 1)
        states.append(list(rows.values()))
    known = chance.randint(0, steps)
    safe_until = Lsn(0, 1, 99 + chance.randint(known, steps))
    rules = ApplyRules(task="t", source="s", safe_until=safe_until, filters=FILTERED if filtered else Rules())
    target = ValuesTarget(f"safe-range-{seed}")
    target.forget()
    session = target.connect()
    create(session, table)
    session.begin()
    session.write(NetChange(table, rows_of(table, []).select(["id"]), rows_of(table, states[known]), Counts()))
    session.commit()
    at = 0
    try:
        while at < steps:
            some = changes[at : at + chance.randint(1, size)]
            parts = {"full": lambda *_: None, "minimal": minimal, "noblob": noblob}[images]
            batch = batch_of(table, some, at, [parts(table, one) for one in some])
            session.begin()
            for change in prepared(session, [with_whole_keys(batch)], rules):
                session.write(change)
            session.commit()
            at += len(some)
    except Halted as error:
        event(error.code)
        if images == "full":
            raise
        return
    event("equal")
    assert session.read_rows(table).sort_by("id").to_pylist() == sorted(states[-1], key=lambda row: row["id"] or 0)
