"""A file with several zones stands for one task file per direction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.model import ConfigError, TableName
from pidts.task.config.task_file import TaskConfig, load_directions, load_task
from pidts.task.config.zone import ZoneSpec

FILE = """\
name: shop
block-allow-list: {shop: {do-dbs: [shop]}}
pidts:
  zones:
    servers:
      a: {host: 127.0.0.1, port: 3306, user: repl, password: "${PW}"}
      b: {host: 127.0.0.1, port: 3307, user: repl, password: "${PW}"}
      c: {host: 127.0.0.1, port: 3308, user: repl, password: "${PW}"}
    feeds: ring
    rules: {block-allow-list: shop}
  relay: ./queue
  chunk-rows: 500
"""
LEAF = "p: {type: postgresql, host: 127.0.0.1, port: 5432, user: app, password: x, database: shop}"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "shop.yaml"
        path.write_text(text)
        return path

    return written


def task(file: Path, direction: str) -> TaskConfig:
    return load_task(file.with_name(f"{file.name}@{direction}"), {"PW": "secret"})


def names(file: Path) -> list[str]:
    return [f"{one}{'+' if one.copies else ''}{''.join(one.forwards)}" for one in load_directions(file, {})]


def test_a_zone_that_joins_is_fed_by_its_seed_alone(write: Write) -> None:
    mesh = FILE.replace("feeds: ring", "feeds: mesh")
    joining = mesh.replace('port: 3308, user: repl, password: "${PW}"', "port: 3308, user: repl, password: x, joins: b")
    assert names(write(mesh)) == ["a-b+", "a-c+", "b-a", "b-c", "c-a", "c-b"]
    file = write(joining)
    assert names(file) == ["a-b+", "b-c+a", "b-a", "c-a", "c-b"]
    assert (task(file, "b-c").mode, task(file, "b-c").zones) == ("all", ZoneSpec("b", "c", ("a",)))
    for zone, said in (("d", "does not feed"), ("c", "does not feed")):
        with pytest.raises(ConfigError, match=said):
            names(write(joining.replace("joins: b", f"joins: {zone}")))


def test_the_first_zone_may_join_another_one(write: Write) -> None:
    """The zone has lost its rows, and gets them again."""
    joining = FILE.replace("feeds: ring", "feeds: mesh").replace(
        'port: 3306, user: repl, password: "${PW}"', "port: 3306, user: repl, password: x, joins: b"
    )
    assert names(write(joining)) == ["b-a+c", "b-c+", "a-b", "a-c", "c-b"]


def test_each_direction_is_a_task_of_its_own(write: Write, tmp_path: Path) -> None:
    file = write(FILE)
    first, last = task(file, "a-b"), task(file, "c-a")
    assert (first.name, first.mode, first.zones) == ("shop-a-b", "all", ZoneSpec("a", "b", ("c",)))
    assert (last.name, last.mode, last.zones) == ("shop-c-a", "incremental", ZoneSpec("c", "a", ("b",)))
    assert (first.source.source_id, first.source.server.port, first.target.port) == ("a", 3306, 3307)
    assert (first.source.server.password, first.target.password) == ("secret", "secret")
    assert (first.relay, last.relay) == (tmp_path / "queue" / "a-b", tmp_path / "queue" / "c-a")
    assert (first.limits.chunk_rows, first.path) == (500, tmp_path / "shop.yaml@a-b")
    assert first.allow(TableName("shop", "t"))
    assert not first.allow(TableName("other", "t"))
    assert load_directions(first.path, {}) == ()


@pytest.mark.parametrize(
    ("feeds", "found"),
    [
        ("ring", ["a-b+c", "b-c+a", "c-ab"]),
        ("mesh", ["a-b+", "a-c+", "b-a", "b-c", "c-a", "c-b"]),
        ("star", ["a-b+c", "a-c+b", "b-a", "c-a"]),
        ("{c: [b], b: [a, c], a: [b]}", ["a-b+", "b-c+a", "b-ac", "c-b"]),
    ],
)
def test_directions_that_copy_stand_in_the_order_in_which_rows_flow(write: Write, feeds: str, found: list[str]) -> None:
    assert names(write(FILE.replace("feeds: ring", f"feeds: {feeds}"))) == found


def test_without_feeds_it_is_a_mesh(write: Write) -> None:
    assert len(names(write(FILE.replace("    feeds: ring\n", "")))) == 6


def test_a_postgresql_is_fed_by_one_zone_and_gets_everything(write: Write) -> None:
    text = FILE.replace("    feeds: ring\n", f"      {LEAF}\n    feeds: {{a: [b, c], b: [a], c: [a, p]}}\n")
    assert "c-p+" in names(write(text))
    leaf = task(write(text), "c-p")
    assert (leaf.target.type, leaf.target.database, leaf.zones.forwards, leaf.mode) == ("postgresql", "shop", (), "all")
    assert (leaf.zone, leaf.is_between_zones) == ("c", False)


def test_a_zone_that_no_program_writes_to_need_not_feed_another_one(write: Write) -> None:
    text = FILE.replace("feeds: ring", "feeds: {a: [b, c], b: [a]}")
    with pytest.raises(
        ConfigError, match="changes of zone c do not reach zone a; changes of zone c do not reach zone b"
    ):
        names(write(text.replace("c: {host", "c: {read-only: false, host")))
    text = text.replace("c: {host", "c: {read-only: true, host").replace("b: [a]", "b: [a, c]")
    with pytest.raises(ConfigError, match="would carry"):
        names(write(text.replace("c: {read-only: true", "c: {type: postgresql, database: d")))
    assert names(write(text)) == ["a-b+", "a-c+", "b-a", "b-c"]
    assert task(write(text), "a-c").target.port == 3308


def test_the_rule_for_conflicts_is_shown_once(write: Write) -> None:
    """A zone that is no MySQL or MariaDB server has no conflicts."""
    text = FILE.replace("  relay", "  conflict: version\n  version-column: v\n  relay", 1)
    assert task(write(text), "a-b").zones.converges
    text = text.replace("feeds: ring", "feeds: {a: [b, c], b: [a]}")
    text = text.replace("c: {", "c: {type: postgresql, database: d, ", 1)
    assert (task(write(text), "b-a").zones.converges, task(write(text), "a-c").zones.converges) == (True, False)


def test_owners_are_said_once_and_are_zones_of_the_file(write: Write) -> None:
    text = FILE.replace("  relay", "  conflict: owner\n  owners: [{schema: shop, zone: b}]\n  relay", 1)
    assert task(write(text), "a-b").zones.owners.zones == {"b"}
    leaf = text.replace("feeds: ring", "feeds: {a: [b, c], b: [a]}")
    leaf = leaf.replace("c: {", "c: {type: postgresql, database: d, ", 1)
    assert (bool(task(write(leaf), "b-a").zones.owners), bool(task(write(leaf), "a-c").zones.owners)) == (True, False)
    with pytest.raises(ConfigError, match="'d' is not a zone"):
        names(write(text.replace("zone: b}", "zone: d}")))


@pytest.mark.parametrize(
    ("old", "new", "code", "word"),
    [
        ("      b: {", "      B: {", "bad-value", "lower-case"),
        ("feeds: ring", "feeds: {a: [d]}", "unknown-name", "'d' is not a zone"),
        ("feeds: ring", "feeds: {a: [a]}", "bad-value", "cannot feed itself"),
        ("feeds: ring", "feeds: circle", "bad-value", "circle"),
        ("feeds: ring", "feeds: {a: [b]}", "zone-unreached", "zone a do not reach zone c"),
        ("feeds: ring", "feed: ring", "unknown-key", "feed"),
        ("name: shop", "name: shop\nmysql-instances: []", "not-supported", "pidts.zones already names the servers"),
        ("  relay", "  zone: a\n  relay", "not-supported", "zone"),
        ("port: 3307", "prot: 3307", "unknown-key", "prot"),
    ],
)
def test_a_mistake_is_reported_with_its_line(write: Write, old: str, new: str, code: str, word: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError, match=word) as error:
        task(write(FILE.replace(old, new, 1)), "a-b")
    assert error.value.code == code
    assert error.value.where.line > 0


def test_a_command_for_one_task_asks_for_a_direction(write: Write) -> None:
    with pytest.raises(ConfigError, match="3 directions") as error:
        load_task(write(FILE), {"PW": ""})
    assert (error.value.code, "shop.yaml@b-c" in error.value.todo) == ("several-directions", True)
    with pytest.raises(ConfigError, match="no direction 'b-a'"):
        task(write(FILE), "b-a")


def test_a_file_whose_own_name_has_an_at_sign_is_a_task_file(tmp_path: Path) -> None:
    file = tmp_path / "shop@a-b"
    file.write_text("name: x\n")
    with pytest.raises(ConfigError, match="task-mode"):
        load_task(file, {})


def test_the_list_names_each_direction(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "")
    file = write(FILE)
    assert run_command(["zones", "list", str(file)]) == 0
    found = capsys.readouterr().out
    assert f"{file}@a-b: copies first, then carries changes of zone a and those of zone c\n" in found
    assert "no task forwards" not in found
    assert run_command(["zones", "list", str(file), "--json"]) == 0
    assert [one["task"].partition("@")[2] for one in json.loads(capsys.readouterr().out)] == ["a-b", "b-c", "c-a"]
    file.write_text(FILE.replace("feeds: ring", "feeds: mesh"))
    assert run_command(["zones", "list", str(file)]) == 0
    assert "no task forwards changes of other zones" in capsys.readouterr().out
    file.write_text("name: x\n")
    assert run_command(["zones", "list", str(file)]) == 2


PAIR = """\
name: shop
block-allow-list: {shop: {do-dbs: [shop]}}
pidts:
  zones:
    servers:
      a: {host: 127.0.0.1, port: 3306, user: repl, password: x}
      b: {host: 127.0.0.1, port: 3307, user: repl, password: x}
    rules: {block-allow-list: shop}
  conflict: version
  version-column: changed
  both-have-rows: true
"""


JOINS = PAIR.replace("    rules:", "      c: {host: h, user: u, password: x, joins: a}\n    rules:")


def test_both_directions_copy_if_both_zones_have_rows(write: Write) -> None:
    file = write(PAIR)
    assert names(file) == ["a-b+", "b-a+"]
    assert all(one.both_have_rows for one in load_directions(file, {}))
    for direction in ("a-b", "b-a"):
        assert task(file, direction).mode == "all"
        assert task(file, direction).zones.both_have_rows
    assert names(write(PAIR.replace("both-have-rows: true", "both-have-rows: false"))) == ["a-b+", "b-a"]


def test_a_zone_with_rows_joins_through_its_seed_in_both_directions(write: Write) -> None:
    file = write(JOINS)
    ways = {str(one): (one.forwards, one.both_have_rows) for one in load_directions(file, {})}
    assert ways == {
        "a-b": (("c",), False),
        "b-a": ((), False),
        "a-c": (("b",), True),
        "c-a": ((), True),
    }
    assert {one for one in ways if task(file, one).zones.both_have_rows} == {"a-c", "c-a"}
    assert task(file, "c-a").mode == "all"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PAIR.replace("conflict: version", "conflict: lock"), "only with pidts.conflict: version"),
        (PAIR.replace("port: 3307,", "port: 3307, read-only: true,"), "do not feed each other"),
        (PAIR.replace("    rules:", "      c: {host: h, user: u, password: x}\n    rules:"), "one zone at a time"),
        (JOINS.replace("    rules:", "    feeds: {a: [b, c], b: [a], c: [b]}\n    rules:"), "do not feed each other"),
        (JOINS.replace("port: 3307,", "port: 3307, joins: a,"), "one zone at a time"),
        (PAIR.replace("name: shop", "name: shop\ntask-mode: incremental"), "task-mode is not all"),
        (PAIR.replace("name: shop", "name: shop\ntask-mode: full"), "task-mode is not all"),
    ],
)
def test_both_zones_can_have_rows_only_with_versions_and_one_at_a_time(write: Write, text: str, said: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=said):
        task(file, "a-b")
