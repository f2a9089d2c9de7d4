"""The log of any table that a server can have, with any values, is decoded to exactly these values.

Random tables with columns of every type are filled, changed and emptied on each real server. The log is read with each
possible structure: from the catalog, and from the log's own metadata. It must give what the server's SELECT shows,
and so must the SELECT with which PiDTS copies. PIDTS_EXAMPLES=1000 tries more examples.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from tests.binlog.logs.random_tables import RandomTable, tables
from tests.binlog.logs.round_trip import IDENTIFIERS, RoundTrip, WrittenRows, copy_faults, faults, logged_tables
from tests.examples import EXAMPLES, examples

from pidts.model import Kind, Table

MINIMAL, FULL = "SET GLOBAL binlog_row_metadata = MINIMAL", "SET GLOBAL binlog_row_metadata = FULL"
NONE = "SET GLOBAL binlog_row_metadata = NO_LOG"
MODES = [
    ("mysql56", "none", [], []),
    ("mysql56", "rows-v1", ["SET GLOBAL log_bin_use_v1_row_events = 1"], ["SET GLOBAL log_bin_use_v1_row_events = 0"]),
    ("mysql97", "minimal", [MINIMAL], []),
    ("mysql97", "full", [FULL], [MINIMAL]),
    ("mysql97", "full-payload", [FULL, "SET binlog_transaction_compression = ON"], [MINIMAL]),
    ("mariadb", "none", [NONE], []),
    ("mariadb", "minimal", [MINIMAL], [NONE]),
    ("mariadb", "full", [FULL], [NONE]),
    (
        "mariadb",
        "full-compressed",
        [FULL, "SET GLOBAL log_bin_compress = 1", "SET GLOBAL log_bin_compress_min_len = 10"],
        [NONE, "SET GLOBAL log_bin_compress = 0", "SET GLOBAL log_bin_compress_min_len = 256"],
    ),
    ("mariadb", "none-old-times", [NONE, "SET GLOBAL mysql56_temporal_format = OFF"], ["SET GLOBAL mysql56_temporal_format = ON"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "mode", "before", "behind"), MODES, ids=[f"{kind}-{mode}" for kind, mode, *_ in MODES]
)
def test_every_value_is_decoded_as_the_server_shows_it(request, kind, mode, before, behind):
    server = request.getfixturevalue(kind)
    with closing(RoundTrip(server, before, f"rt_{mode.replace('-', '_')}")) as trip:

        @settings(
            max_examples=examples(4),
            deadline=None,
            phases=[Phase.reuse, Phase.generate, *([Phase.shrink] if EXAMPLES else [])],
            suppress_health_check=list(HealthCheck),
        )
        @given(tables(kind))
        def holds(drawn: list[RandomTable]) -> None:
            written, *log = trip.write(drawn)
            known = {table.name: table.structure for table in written}
            for table in written:
                _declared(table)
            found = faults(written, *log, known)
            found += [fault for table in written for fault in copy_faults(table, *log)]
            raw, form, _ = log
            if mode.startswith("full"):
                reported = logged_tables(raw, form, placeholders=False)
                found += [fault for table in written for fault in _differs_from_structure(table, reported[table.name])]
                found += [f"as the log has it: {fault}" for fault in faults(written, *log, reported)]
            elif "old-times" not in mode:
                reported = logged_tables(raw, form, placeholders=True)
                found += [f"with placeholders: {fault}" for fault in faults(written, *log, reported)]
            for table in written:
                note(repr(table.random))
            assert found == []

        try:
            holds()
        finally:
            trip.run(f"DROP DATABASE IF EXISTS {trip.schema}")
            for statement in behind:
                trip.run(statement)


def _declared(table: WrittenRows) -> None:
    """Checks that the structure that was read has the kinds and names of the declared columns."""
    kinds = [column.kind for column in table.random.columns]
    assert [column.type.kind for column in table.structure.columns[1:]] == kinds
    assert [column.name for column in table.structure.columns[1:]] == [column.name for column in table.random.columns]


def _differs_from_structure(table: WrittenRows, logged: Table) -> list[str]:
    """Returns each difference between a structure from a FULL table map and the structure from the catalog."""
    found = []
    if logged.identity != table.structure.identity:
        found.append(f"{table.name} has the key {logged.identity}")
    for mine, theirs in zip(logged.columns, table.structure.columns, strict=True):
        if theirs.type.kind in IDENTIFIERS:
            continue
        fields = ["kind", "unsigned", "charset", "labels", "fsp"]
        if theirs.type.kind in (Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY, Kind.BIT, Kind.VECTOR):
            fields.append("length")
        if theirs.type.kind is Kind.DECIMAL:
            fields += ["precision", "scale"]
        found += [
            f"{table.name}.{mine.name}: {name} {getattr(mine.type, name)}, not {getattr(theirs.type, name)}"
            for name in fields
            if getattr(mine.type, name) != getattr(theirs.type, name)
        ]
        if (mine.name, mine.nullable) != (theirs.name, theirs.nullable):
            found.append(f"{table.name}.{mine.name} {mine.nullable}, not {theirs.name} {theirs.nullable}")
    return found
