"""Rows may swap values although only the target has a unique key over them: over columns, prefixes, expressions or some
of the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create, write

from pidts.apply import TargetSession
from pidts.model import ChangeBatch, Halted, Key, Lsn, Op, TableName, change_schema
from pidts.reduce import net_changes
from pidts.target.mysql.dialect import qualified as mysql_name
from pidts.target.postgres.dialect import qualified as postgres_name

from .samples import INT, change, table, text

pytestmark = pytest.mark.repeats("mysql56", "mysql97")

MYSQL = {
    "extra": "ALTER TABLE {} ADD UNIQUE KEY own (word)",
    "prefix": "ALTER TABLE {} ADD UNIQUE KEY own (word(1))",
    "expression": "ALTER TABLE {} ADD UNIQUE KEY own ((upper(word)))",
    "generated": "ALTER TABLE {} ADD COLUMN own INT AS (ascii(word) + 1) VIRTUAL, ADD UNIQUE KEY own (own)",
}
POSTGRES = {
    "extra": "CREATE UNIQUE INDEX ON {} (word)",
    "prefix": "CREATE UNIQUE INDEX ON {} (left(word, 1))",
    "expression": "CREATE UNIQUE INDEX ON {} (upper(word))",
    "part of the rows": "CREATE UNIQUE INDEX ON {} (word) WHERE number = 1",
    "exclusion": "ALTER TABLE {} ADD EXCLUDE (word WITH =)",
}
OWN = {
    "values": {"extra": ""},
    "postgres": POSTGRES,
    "mariadb": {name: sql for name, sql in MYSQL.items() if name != "expression"},
    "mysql97": MYSQL,
    "mysql56": {name: MYSQL[name] for name in ("extra", "prefix")},
}


@pytest.mark.parametrize(("kind", "own"), [(kind, own) for kind, keys in OWN.items() for own in keys])
def test_rows_exchange_values_of_a_key_that_only_the_target_has(
    session: TargetSession, name: TableName, kind: str, own: str
) -> None:
    structure = table(name, {"id": INT, "word": text(), "number": INT})
    made = replace(structure, keys=(*structure.keys, Key("own", ("word",), unique=True)))
    create(session, made if kind == "values" else structure)
    assert kind == "values" or session.schema.collision_columns(structure) == ()
    if kind != "values":
        session.execute(OWN[kind][own].format((postgres_name if kind == "postgres" else mysql_name)(name)))
    before = [(1, "apple", 1), (2, "bread", 1), (3, "cheese", 2)]
    after = [(1, "bread", 1), (2, "cheese", 2), (3, "apple", 1)]
    write(session, change(structure, upserts=before))
    schema = pa.struct(list(structure.arrow))
    changes = ChangeBatch.of(
        structure,
        pa.array([Lsn(0, 1, 100, row).to_bytes() for row in range(3)], change_schema(structure).field("lsn").type),
        pa.array([int(Op.UPDATE)] * 3, pa.int8()),
        *(
            pa.array([dict(zip(structure.arrow.names, row, strict=True)) for row in side], schema)
            for side in (before, after)
        ),
    )

    session.begin()
    (unaware,) = net_changes([changes])
    with pytest.raises(Halted):  # noqa: PT012 - a server may answer at COMMIT
        session.write(unaware)
        session.commit()
    session.rollback()

    (net,) = net_changes([changes], {name: session.schema.collision_columns(structure)})
    write(session, net)
    found: list[Any] = [tuple(row.values()) for row in session.read_rows(structure).to_pylist()]
    assert sorted(found) == after
