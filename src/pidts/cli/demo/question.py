"""The question that the demo asks at its end if its target is a warehouse: how many orders of each state are there?

The demo reads the warehouse with pyiceberg and pyarrow, and not with PiDTS's own code. So equal answers show that other
programs see the source's rows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TextIO

from pidts.source.connection import SourceConfig, connect, query

Answer = dict[str, tuple[int, Decimal]]
"""For each state of an order, the number of orders in this state and the sum of their totals."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of the source and of the warehouse to the same question."""

    source: Answer
    warehouse: Answer

    @property
    def are_equal(self) -> bool:
        """Whether both answers are equal."""
        return self.source == self.warehouse


def show_answers(answers: Answers, out: TextIO) -> None:
    """Prints both answers side by side."""
    print(f"{'orders':10} {'source':>25} {'warehouse':>25}", file=out)
    for state in sorted(answers.source | answers.warehouse):
        sides = [side.get(state, (0, Decimal())) for side in (answers.source, answers.warehouse)]
        print(f"{state:10} " + " ".join(f"{count:9,} {total:15,}" for count, total in sides), file=out)
    print("the answers are equal" if answers.are_equal else "the answers DIFFER", file=out)


def of_source(server: SourceConfig) -> Answer:
    """Returns the source's answer. COUNT(*) equals the warehouse's count of totals, since no total is NULL."""
    with closing(connect(server)) as session:
        rows = query(session, "SELECT state, COUNT(*), SUM(total) FROM shop.orders GROUP BY state")
    return {str(state): (int(count), Decimal(total)) for state, count, total in rows}


def of_warehouse(warehouse: Path) -> Answer:
    """Returns the warehouse's answer, from its files."""
    from pyiceberg.table import StaticTable

    with closing(sqlite3.connect(warehouse / "catalog.db")) as catalog:
        (location,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'shop' AND table_name = 'orders'"
        ).fetchone()
    orders = StaticTable.from_metadata(location).scan(selected_fields=("state", "total")).to_arrow()
    found = orders.group_by("state").aggregate([("total", "count"), ("total", "sum")])
    return {row["state"]: (row["total_count"], row["total_sum"]) for row in found.to_pylist()}
