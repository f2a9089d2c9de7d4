"""Produces the next item in another thread while the current item is used, so that two cores work at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")


def ahead(items: Iterable[_T]) -> Iterator[_T]:
    """Yields the items in their order; another thread produces the next one in advance."""
    making = iter(items)

    def made() -> list[_T]:
        return list(islice(making, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as maker:
        coming = maker.submit(made)
        while found := coming.result():
            coming = maker.submit(made)
            yield found[0]
