"""A task of several sources begins without a source that is down, if the task has begun before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pidts.model import Checkpoint, Lsn, Position, PrecheckFailed
from pidts.sandbox import Server
from pidts.task.checks.all_sources import check_all_sources, require_all_sources_fit
from pidts.task.config.task_file import TaskConfig, load_parts

RunSql = Callable[..., list[tuple[Any, ...]]]
Write = Callable[..., tuple[TaskConfig, ...]]


@pytest.fixture
def write(tmp_path: Path, mariadb: Server, postgres: Server, database: str, run_sql: RunSql) -> Iterator[Write]:
    def task(*, down: str = "", password: str = mariadb.password, misspelt: str = "nowhere") -> tuple[TaskConfig, ...]:
        path = tmp_path / "task.yaml"
        instances = "".join(
            f"""\
  - source-id: {name}
    from: {{host: {mariadb.host}, port: {1 if name == down else mariadb.port}, user: {mariadb.user},
      password: "{password if name == "b" else mariadb.password}"}}
    block-allow-list: {name}
"""
            for name in "ab"
        )
        path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: postgresql, host: {postgres.host}, port: {postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
{instances}
block-allow-list: {{a: {{do-dbs: ["{database}_a"]}}, b: {{do-dbs: ["{database}_b", {misspelt}]}}}}
""")
        return load_parts(path)

    for name in "ab":
        run_sql(mariadb, f"CREATE DATABASE `{database}_{name}`")
        run_sql(mariadb, f"CREATE TABLE `{database}_{name}`.t (id INT PRIMARY KEY)")
    yield task
    for name in "ab":
        run_sql(mariadb, f"DROP DATABASE `{database}_{name}`")


def begin(part: TaskConfig) -> None:
    with closing(part.target.server.connect()) as target:
        target.meta.prepare()
        source = part.source.source_id
        first = Checkpoint(task=part.name, source=source, worker=0, lsn=Lsn.at(Position("bin.000001", 4)))
        target.meta.checkpoints.claim(part.name, source, 1, first)


def refused(parts: tuple[TaskConfig, ...], why: str = "source_connection: b: [source-unreachable]") -> bool:
    try:
        require_all_sources_fit(parts, {})
    except PrecheckFailed as error:
        return error.what.startswith(why)
    return False


def test_a_source_that_is_down_keeps_no_other_from_starting(write: Write) -> None:
    assert not refused(write())
    down = write(down="b")
    assert refused(down), "nothing is known of it"
    begin(down[1])
    assert refused(down), "one that is new is looked at beside all others"
    begin(down[0])
    assert not refused(down)
    (found,) = [finding for finding in check_all_sources(down) if not finding.ok]
    assert [one for one in check_all_sources(down) if one.item == "rules"] == [], "nobody can say"
    assert (found.item, found.message[:3]) == ("source_connection", "b: ")


def test_the_only_source_is_waited_for_once_the_task_has_begun(write: Write) -> None:
    down = write(down="b")[1:]
    assert refused(down, "source_connection: [source-unreachable]"), "its address may be wrong"
    begin(down[0])
    assert not refused(down)


def test_an_entry_that_fits_nothing_is_reported_where_all_sources_are_known(write: Write) -> None:
    (found,) = [finding for finding in check_all_sources(write()) if finding.item == "rules"]
    assert found.ok
    assert found.message == "block-allow-list: nowhere of do-dbs matches no table of any source"
    assert found.fix, "so its level is hint"


def test_a_misspelt_schema_beside_others_leads_to_the_similar_one(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE DATABASE `{database}_nowher`")
    try:
        run_sql(mariadb, f"CREATE TABLE `{database}_nowher`.t (id INT PRIMARY KEY)")
        parts = write(misspelt=f"{database}_nowhere")
        (found,) = [finding for finding in check_all_sources(parts) if finding.item == "rules"]
        assert found.fix.startswith(f"Did you mean {database}_nowher"), found.fix
    finally:
        run_sql(mariadb, f"DROP DATABASE `{database}_nowher`")


def test_a_login_that_is_refused_is_no_server_that_is_down(write: Write) -> None:
    for part in write():
        begin(part)
    with pytest.raises(PrecheckFailed, match="source_connection: b"):
        require_all_sources_fit(write(password="wrong"), {})


def test_a_source_whose_tables_come_later_keeps_the_others_from_nothing(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"DROP TABLE `{database}_b`.t")
    parts = write()
    require_all_sources_fit(parts, {})
    found = [
        one.message for one in check_all_sources(parts) if one.item == "table_list" and one.message.startswith("b: ")
    ]
    assert found == [
        "b: no table of this server matches block-allow-list; a table that is created later joins the task",
        "b: this source has no schema nowhere: check the spelling in block-allow-list",
    ]
    run_sql(mariadb, f"DROP TABLE `{database}_a`.t")
    with pytest.raises(PrecheckFailed, match="table_list"):
        require_all_sources_fit(parts, {})


def test_findings_about_the_source_servers_name_the_sources(write: Write) -> None:
    found = check_all_sources(write())
    about = {one.item: one.message.partition(": ")[0] for one in found}
    assert about["version"] == about["binlog_enable"] == "all sources"
    assert not about["target_connection"].startswith("all")
