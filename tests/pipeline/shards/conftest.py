"""The settings with which stories of shards begin, unless their module has other settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .step_by_step import MakeStory, stories


@pytest.fixture
def story() -> Iterator[MakeStory]:
    with stories() as make_story:
        yield make_story
