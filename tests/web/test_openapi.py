"""The description of the REST interface, and the page of the documentation, have exactly the operations that are
served.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route
from tests.web.served import FILE, Web, served

from pidts.web.access import Policy
from pidts.web.app import application, operations
from pidts.web.openapi import openapi

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"
ROW = re.compile(r"^\| `([A-Z]+) (/[^`?]*)(?:\?[^`]*)?` \| ", re.MULTILINE)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with served(tmp_path_factory.mktemp("web")) as found:
        yield found


def described() -> set[tuple[str, str]]:
    found = openapi(operations(None, None, Policy("127.0.0.1")))  # type: ignore[arg-type]  # nothing is called
    return {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}


def test_each_route_is_described_and_each_description_is_a_route() -> None:
    policy = Policy("127.0.0.1")
    app = application(operations(None, None, policy), policy)  # type: ignore[arg-type]  # nothing is called
    routes = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path != "/openapi.json"
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == described()


def test_the_page_has_each_operation_and_no_other() -> None:
    assert set(ROW.findall(PAGE.read_text("utf-8"))) == described()


def test_the_description_is_whole(web: Web) -> None:
    status, found = web.call("GET", "/openapi.json")
    assert status == 200
    assert found["openapi"].startswith("3.1")
    names = [one["operationId"] for methods in found["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    for path, methods in found["paths"].items():
        for one in methods.values():
            in_path = {parameter["name"] for parameter in one["parameters"] if parameter["in"] == "path"}
            assert in_path == set(re.findall(r"\{(\w+)\}", path))
            assert one["summary"]
    references = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert references == set(found["components"]["schemas"])


def test_a_summary_has_what_its_schema_demands(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    status, made = web.call("POST", "/api/tasks?start=false", FILE)
    assert status == 201, made
    schema = web.call("GET", "/openapi.json")[1]["components"]["schemas"]["Summary"]
    assert set(schema["required"]) <= set(made) <= set(schema["properties"])
    detail = web.call("GET", "/api/tasks/shop")[1]
    assert set(made) | {"progress", "road", "last_hour", "changes"} == set(detail)
    assert detail["stage"] == "stopped"


def test_no_answer_has_a_secret(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the task that the previous test has created."""
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    assert web.call("GET", "/api/tasks/shop")[0] == 200
    paths = [path for method, path in described() if method == "GET" and "events" not in path and "{id}" not in path]
    for path in paths:
        _, _, answer = web.send("GET", path.replace("{name}", "shop"), None, {})
        assert b"never shown" not in answer, path
    text = web.call("GET", "/api/tasks/shop/file")[1]["text"]
    assert 'password: "***", database: shop' in text
    assert '"${SOURCE_PASSWORD}"' in text
    # A file that is sent back as it was shown keeps its secret.
    assert web.call("PUT", "/api/tasks/shop", text.replace("port: 9,", "port: 10,"))[0] == 200
    stored = (web.state / "tasks" / "shop" / "task.yaml").read_text()
    assert "never shown" in stored
    assert "port: 10" in stored
    assert web.call("DELETE", "/api/tasks/shop")[0] == 200
