"""Compares spans of one table in another process, on connections of its own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pidts.model import Halted, TableName, Where
from pidts.task.compare.target import target_rows
from pidts.task.compare.wiring import normals_of, opened_comparison
from pidts.task.config.task_file import TaskConfig
from pidts.verify import KeySpan, Matcher, MergedSource, SpanComparison, SpanResult, joined


@dataclass(frozen=True, slots=True)
class SpanWork:
    """Compares spans of one table. The object is sent to another process, which calls it with the spans."""

    parts: tuple[TaskConfig, ...]
    table: TableName
    """The target's name of the table."""
    signature: str
    """The table's signature when its comparison began."""

    def __call__(self, spans: Sequence[KeySpan]) -> list[SpanResult]:
        """Compares spans. Without spans, only checks that this process reaches the servers and the target's files."""
        with opened_comparison(self.parts, self.table.__eq__) as comparison, ThreadPoolExecutor(1) as pool:
            source = MergedSource(comparison.merged_tables, comparison.members)
            table = source.structure(self.table)
            if table is None or source.signature(table) != self.signature:
                what = "the table's structure has changed while it was compared"
                raise Halted(
                    "structure-changed", what, where=Where(table=str(self.table)), todo="Run the command again"
                )
            target = target_rows(comparison.target, lambda: source.merged_tables)
            compare_spans = SpanComparison(
                source,
                target,
                Matcher(table, normals_of(self.parts[0]), target.documents(table)),
                pool,
                source.size(table).row_bytes,
            )
            return [joined(list(compare_spans([span]))) for span in spans]
