"""Compares large tables in jobs of the Spark cluster that the task file names.

If the cluster has no free executor, or if its machines cannot reach the source or the warehouse, this process compares
the tables in more time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pidts.model import PidtsError, TableName, Transient
from pidts.owned_folder import owned_folder
from pidts.relay.permissions import private_files
from pidts.task.compare.span_work import SpanWork
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.shared_spark import SharedSpark
from pidts.verify import CompareSpans, Elsewhere, KeySpan, SpanResult

if TYPE_CHECKING:
    from pidts.spark.session import Session

_USER = "verify"
_OF_THE_TABLE = frozenset({"structure-changed", "target-shape"})
"""Codes of errors that the table itself causes. A comparison in this process would end with the same error."""
_PATIENCE = 60.0
"""The time in seconds in which an executor has to begin."""


@contextmanager
def comparison_jobs(parts: Sequence[TaskConfig], say: Callable[[str], None]) -> Iterator[Elsewhere | None]:
    """Yields the function by which tables are compared in the task's cluster; None if the task has no cluster."""
    first = parts[0]
    if first.spark_master.startswith("local"):
        yield None
        return
    with private_files(), owned_folder(first.name) as scratch, closing(SharedSpark(first, scratch)) as spark:
        yield _Cluster(tuple(parts), spark, say).begin


class _Cluster:
    """The task's cluster. Its Spark session is created for the first large table."""

    def __init__(self, parts: tuple[TaskConfig, ...], spark: SharedSpark, say: Callable[[str], None]) -> None:
        self._parts, self._spark, self._say = parts, spark, say
        self._is_unable = False
        self._session: Session | None = None

    def begin(self, table: TableName, signature: str, look: Callable[[], None]) -> CompareSpans | None:
        """Returns the function that compares a table's spans; None if the cluster cannot compare them."""
        if self._is_unable:
            return None
        from pidts.spark.compare_job import demand_workers

        work = SpanWork(self._parts, table, signature)
        try:
            with self._spark.losing_is_transient(lambda: self._session):
                self._session = self._spark.session(_USER)
                demand_workers(self._session, work, _PATIENCE, look)
        except PidtsError as error:
            if error.code == "structure-changed":
                raise
            self._is_unable = True
            self._say(f"Spark cannot compare tables, so this process compares them: {error.what}")
            return None
        return partial(self._compare, self._session, work, look)

    def _compare(
        self, session: Session, work: SpanWork, look: Callable[[], None], spans: Iterable[KeySpan]
    ) -> Generator[SpanResult, None, None]:
        from pidts.spark.compare_job import compare_in_jobs

        try:
            with self._spark.losing_is_transient(lambda: session):
                yield from compare_in_jobs(session, work, spans, look)
        except PidtsError as error:
            if isinstance(error, Transient) or error.code in _OF_THE_TABLE:
                raise
            # One executor may be able to compare a table, while another executor fails: perhaps only one machine has
            # the warehouse.
            self._is_unable = True
            self._say(f"Spark cannot compare tables, so this process compares the rest: {error.what}")
            raise Transient("spark-unable", f"an executor cannot compare: {error.what}") from error
