"""The advice after a refused login to PostgreSQL can be followed as it is printed."""

from __future__ import annotations

import re

import psycopg
import pytest

from pidts.cli.server_urls import target_address
from pidts.target.postgres.errors import translate_connect


@pytest.mark.parametrize(
    "message", ['password authentication failed for user "x"', 'permission denied for database "shop"']
)
def test_the_command_names_a_url_that_the_command_accepts(message: str) -> None:
    error = translate_connect(psycopg.OperationalError(message), "db.example:5433/shop")
    found = re.search(r"--target '(postgresql://[^\s'`]+)'", error.todo)
    assert found is not None, error.todo
    address = target_address(found[1], {"ADMIN_PASSWORD": "secret"})
    assert (address.host, address.port, address.database) == ("db.example", 5433, "shop")
    assert (address.user, address.password) == ("ADMIN", "secret")


def test_the_advice_asks_whether_the_server_runs_and_the_text_of_the_driver_does_not() -> None:
    message = (
        'connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused\n'
        "\tIs the server running on that host and accepting TCP/IP connections?\n"
    )
    error = translate_connect(psycopg.OperationalError(message), "db.example:5433/shop")
    assert error.what.endswith("failed: Connection refused")
    assert str(error).count("running?") == 1


def test_the_hint_of_the_driver_is_a_sentence_of_its_own() -> None:
    listed = "Multiple connection attempts failed. All failures were:\n- host a: no answer\n- host b: refused"
    error = translate_connect(psycopg.OperationalError(listed), "db.example:5433/shop")
    assert error.what.endswith("All failures were: - host a: no answer. - host b: refused")
