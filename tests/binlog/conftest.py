"""Both ways of decoding."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["compiled", "python"])
def kernel(request, monkeypatch):
    """Runs the test with compiled code, and again with plain code."""
    monkeypatch.setenv("PIDTS_KERNEL", request.param)
    return request.param
