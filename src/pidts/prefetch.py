"""While one thing is worked on, the next is made: a server and we are each bound by a processor of our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")


def ahead(items: Iterable[_T]) -> Iterator[_T]:
    """The same items; one more than is asked for is being made by another thread."""
    making = iter(items)

    def made() -> list[_T]:
        return list(islice(making, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as maker:
        coming = maker.submit(made)
        while found := coming.result():
            coming = maker.submit(made)
            yield found[0]
