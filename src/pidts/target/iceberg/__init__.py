"""Iceberg tables as a target: a warehouse is a local directory that contains an SQL catalog.

The files of the tables are in this directory, or in an object store. No part of pyiceberg is loaded before the first
connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pidts.model import PrecheckFailed
from pidts.target.meta_schema import USUAL

if TYPE_CHECKING:
    from pidts.target.iceberg.session import IcebergSession


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """The configuration of a warehouse."""

    warehouse: str
    """The warehouse's directory, as an absolute path."""
    catalog: str = "lake"
    """The catalog's name, which the rows of its SQL tables contain; other programs have to use the same name."""
    meta_schema: str = USUAL
    """The first part of the names of PiDTS's own tables."""
    refuses_unreal: bool = False
    files: str = ""
    """The place in an object store for the files of new tables, `s3://bucket/folder`; empty: the warehouse."""

    piece_rows: ClassVar[int] = 200_000
    """The smallest number of copied rows for which a commit is worthwhile. Each commit writes several files and waits
    until they are durable, however few rows it has. Small data files also have to be merged later.
    """
    buffers_rows: ClassVar[bool] = True

    def connect(self) -> IcebergSession:
        """Returns a new session."""
        with with_packages("iceberg"):
            from pidts.target.iceberg.session import IcebergSession
        return IcebergSession(
            self.warehouse, self.catalog, self.meta_schema, refuses_unreal=self.refuses_unreal, files=self.files
        )


@contextmanager
def with_packages(kind: str) -> Iterator[None]:
    """Raises an error if a package is missing. The error names the package and says how to install it."""
    try:
        yield
    except ImportError as error:
        raise PrecheckFailed(
            "missing-package",
            f"a target of type {kind} needs a package that is not installed: {error.name}",
            todo="In the clone from which PiDTS was installed: pip install -r requirements/lake.txt, with the pip of "
            "the environment that has PiDTS",
        ) from error
