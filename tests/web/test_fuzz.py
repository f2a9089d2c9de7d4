"""Requests made from the interface's own description, with hostile values everywhere, are refused and never break it."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.web.served import FILE, Web, served

from pidts.web import access
from pidts.web.access import Policy
from pidts.web.app import operations
from pidts.web.openapi import openapi

DESCRIBED = openapi(operations(None, None, Policy("127.0.0.1")))  # type: ignore[arg-type]  # nothing is called
SLOW = {"status", "relay", "ddl", "locks", "runs"}
"""Operations that start programs: they get names of missing tasks, and bodies that are refused."""
OPERATIONS = sorted(
    (method.upper(), path, json.dumps(one))
    for path, methods in DESCRIBED["paths"].items()
    for method, one in methods.items()
    if "events" not in path
)
HOSTILE = st.sampled_from(
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "%2e%2e",
        "a/b",
        "\x00",
        "\n",
        "<script>",
        "'; DROP",
        "--yes",
        "-",
        "é",
        "\U0001f600",
        "x" * 5000,
        "shop",
    ]
)
TEXT = st.one_of(HOSTILE, st.text(max_size=40))
VALUE: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


def a_short_life(*_: object) -> Any:
    """Replaces a task's process by one that ends at once: requests start tasks, and no server is used here."""
    return subprocess.Popen(["true"])


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    before = access.CHANGES_PER_SECOND
    access.CHANGES_PER_SECOND = 10**6  # type: ignore[misc]  # the limit has its own test
    with pytest.MonkeyPatch.context() as patch, served(tmp_path_factory.mktemp("fuzz"), start=a_short_life) as found:
        patch.setenv("SOURCE_PASSWORD", "x")
        assert found.call("POST", "/api/tasks?start=false", FILE)[0] == 201
        yield found
    access.CHANGES_PER_SECOND = before  # type: ignore[misc]


def bodies(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Returns bodies of the described form with any values, with one member of another type, and of any form."""
    members = {name: st.one_of(TEXT, VALUE, st.lists(TEXT, max_size=2)) for name in schema.get("properties", {})}
    return st.one_of(st.fixed_dictionaries({}, optional=members), VALUE)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    method, path, text = draw(st.sampled_from(OPERATIONS))
    one = json.loads(text)
    is_slow = bool(SLOW & set(path.split("/")))
    name = draw(TEXT)
    for parameter in one["parameters"]:
        if parameter["in"] == "path":
            value = name if parameter["name"] == "name" else draw(TEXT)
            if is_slow and value == "shop":
                value = "another"
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe=draw(st.sampled_from(["", "/."]))))
    query = {p["name"]: draw(TEXT) for p in one["parameters"] if p["in"] == "query" and draw(st.booleans())}
    if query:
        path += "?" + "&".join(f"{quote(key)}={quote(value)}" for key, value in query.items())
    headers = {"X-Pidts": draw(st.sampled_from(["1", "0", ""]))}
    body: bytes | None = None
    content = one.get("requestBody", {}).get("content", {})
    if content and draw(st.booleans()):
        kind = draw(st.sampled_from([*content, "application/json", "text/plain", "application/yaml; charset=x"]))
        headers["Content-Type"] = kind
        if "yaml" in kind:
            body = draw(
                st.one_of(
                    st.binary(max_size=60),
                    TEXT.map(lambda t: t.encode("utf-8", "surrogatepass")),
                    st.just(FILE.encode()),
                )
            )
        else:
            schema = content.get("application/json", {}).get("schema", {})
            body = draw(st.one_of(st.binary(max_size=30), bodies(schema).map(lambda value: json.dumps(value).encode())))
    if draw(st.booleans()):
        headers[
            draw(st.sampled_from(["Host", "Origin", "Cookie", "Authorization", "Content-Type", "Sec-Fetch-Site"]))
        ] = draw(st.sampled_from(["", "localhost", "x" * 3000, "\xff", "pidts=1.2; pidts", "Bearer", "null", "\t"]))
    return method, path, body, headers


@given(request=requests())
@settings(max_examples=examples(200))
def test_no_request_breaks_the_service(web: Web, request: tuple[str, str, bytes | None, dict[str, str]]) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)) as connection:
        try:
            connection.request(*request)
        except (ValueError, UnicodeError, http.client.InvalidURL):
            return  # Python's client refuses to send such a request.
        answer = connection.getresponse()
        data = answer.read()
    assert answer.status < 500, (request, data)
    # What is no HTTP is refused before the application, in plain text.
    if answer.status >= 400 and answer.getheader("content-type") == "application/json":
        error = json.loads(data)["error"]
        assert set(error) == {"code", "what", "where", "todo"}
        assert error["code"]


def test_the_task_and_the_service_are_still_there(web: Web) -> None:
    """No hostile request has removed the task, or started it."""
    assert web.call("GET", "/readyz")[0] == 200
    left = [path.name for path in (web.state / "tasks").iterdir()]
    assert [name for name in left if name.startswith(".")] == []
