"""Property tests have no deadline, since the machine may be busy."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(params=["compiled", "python"])
def kernel(request, monkeypatch):
    """Runs the test with compiled code, and again with plain code."""
    monkeypatch.setenv("PIDTS_KERNEL", request.param)
    return request.param
