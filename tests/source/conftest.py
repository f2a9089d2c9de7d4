"""Connections to the shared servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pidts.sandbox import Server
from pidts.source import Session, SourceConfig, connect

ConfigOf = Callable[[Server], SourceConfig]
Open = Callable[[Server], Session]


def _config(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s1")


@pytest.fixture(scope="session")
def config_of() -> ConfigOf:
    return _config


@pytest.fixture
def open_session() -> Iterator[Open]:
    opened: list[Session] = []

    def open_one(server: Server) -> Session:
        opened.append(connect(_config(server)))
        return opened[-1]

    yield open_one
    for session in opened:
        if session.open:
            session.close()
