"""Both ways of reducing: a few rows one by one, and by Arrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=[64, 0], ids=["one by one", "by Arrow"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has so many rows reduced one by one; without it, small batches of a test would never come to Arrow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("net_changes", "identity"):
            patch.setattr(sys.modules[f"pidts.reduce.{name}"], "FEW", request.param)  # the function has its name
        yield
