"""Runs tests with both ways of reducing: a few rows one by one, and many rows with Arrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=[64, 0], ids=["one by one", "by Arrow"])
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sets how many rows are still reduced one by one; otherwise the small batches of a test would never use Arrow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("net_changes", "identity"):
            # `pidts.reduce.net_changes` is also the name of a function.
            patch.setattr(sys.modules[f"pidts.reduce.{name}"], "FEW", request.param)
        yield
