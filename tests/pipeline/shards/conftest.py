"""What stories of shards begin with, unless their module says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .step_by_step import Tell, stories


@pytest.fixture
def story() -> Iterator[Tell]:
    with stories() as tell:
        yield tell
