"""Connections to the shared servers."""

from __future__ import annotations

from tests.source.conftest import config_of, open_session

__all__ = ["config_of", "open_session"]
