"""Tables with unusual keys end as on the source, whatever happens to them: logs of real servers, real targets.

The tests vary the types of the keys, the row images, the number of workers, how a batch is written, whether rows are
compared, and whether only one side has the further unique keys.
"""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import pytest
from tests.apply.server_histories import ServerHistory, ServerRun
from tests.apply.test_on_servers import create, target_on
from tests.binlog.logs.round_trip import RoundTrip
from tests.conftest import RunSql
from tests.examples import seeds

from pidts.apply import ApplyRules
from pidts.model import OnDivergence, Table, TableName
from pidts.sandbox import Server

PAIRS = [("mariadb", "postgres"), ("mysql97", "mariadb")]
LONGER = [("mariadb", "mysql97"), ("mysql97", "postgres"), ("mysql56", "mariadb"), ("mysql97", "mysql97")]
ROWS = {"halt": OnDivergence.HALT, "lock": OnDivergence.LOCK, "overwrite": OnDivergence.OVERWRITE}


def shapes(table: Table, chance: random.Random) -> tuple[Table, Table]:
    """Returns the target's structure, and the structure that the task knows.

    One of them may lack the further unique keys, or the target's key may have its columns in another order.
    """
    lean = replace(table, keys=tuple(key for key in table.keys if key.columns == table.identity))
    turned = [replace(key, columns=key.columns[::-1]) if key.primary else key for key in table.keys]
    return chance.choice([(table, table), (table, lean), (lean, table), (replace(table, keys=tuple(turned)), table)])


def carried(source: Server, other: Server, run_sql: RunSql, seed: str) -> None:
    chance, target = random.Random(seed), target_on(other)
    schema = f"histories_{source.kind}_{other.kind}"
    workers = chance.choice([1, 1, 2, 3])
    # With MINIMAL images, an update that gives its row to another worker halts the table.
    images = ["FULL"] if workers > 1 else chance.choice([["FULL"], ["MINIMAL"], ["MINIMAL", "NOBLOB", "FULL"]])
    with (
        closing(RoundTrip(source, [], schema)) as trip,
        closing(target_on(source).connect()) as there,
        closing(target.connect()) as session,
    ):
        history = ServerHistory(trip, there, chance, source.kind, chance.randrange(1, 4))
        history.play(chance.randrange(5, 25), images)
        session.meta.prepare()
        known: dict[TableName, Table] = {}
        copies = {
            name: table.renamed(TableName(f"{schema}_to", name.name)) for name, table in history.structures.items()
        }
        for name, table in copies.items():
            made, known[name] = shapes(table, chance)
            create(session, made)
        rules = ApplyRules(
            task=f"{source.kind} {seed}",
            source="s",
            on_divergence=ROWS[chance.choice([*ROWS])],
            safe=chance.random() < 0.2,
            expects=chance.random() < 0.5,
            inserts=chance.random() < 0.5,
        )
        split = chance.choice([None, 1, 3])
        run = ServerRun(
            history, target, chance, workers, rules, is_long=chance.random() < 0.3, split=split, known=known
        )
        run.carry()
        trip.run(f"DROP DATABASE {schema}")
    run_sql(other, f"DROP SCHEMA {schema}_to" + (" CASCADE" if other.kind == "postgres" else ""))


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_any_history_of_any_keys(request: pytest.FixtureRequest, run_sql: RunSql, pair: tuple[str, str]) -> None:
    source, other = (request.getfixturevalue(kind) for kind in pair)
    for seed in seeds(16):
        carried(source, other, run_sql, seed)


@pytest.mark.long
@pytest.mark.parametrize("pair", LONGER, ids="-".join)
def test_any_history_of_any_keys_between_other_servers(
    request: pytest.FixtureRequest, run_sql: RunSql, pair: tuple[str, str]
) -> None:
    source, other = (request.getfixturevalue(kind) for kind in pair)
    for seed in seeds(40):
        carried(source, other, run_sql, seed)
