"""A task with several sources has a part for each. The parts work at the same time, and the run ends when all have
reached the goal.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from pidts.cli.app import run_command
from pidts.model import (
    Column,
    ColumnType,
    ConfigError,
    Halt,
    Halted,
    Key,
    Kind,
    Lsn,
    Member,
    OnDivergence,
    Position,
    ShardLock,
    Table,
    TableName,
    Transient,
)
from pidts.task.config.task_file import TaskConfig, load_part, load_parts, load_task
from pidts.task.operate.progress import Progress, SourceProgress, Stage, TableProgress
from pidts.task.run.config_reload import ConfigReload
from pidts.task.run.goal import RunCompletion
from pidts.task.run.tracker import CombinedProgress, combined
from pidts.task.tables.copy_start import resync_of
from pidts.task.threads_per_source import side_by_side

TASK = """\
name: shops
task-mode: all
shard-mode: pessimistic
target-database: {type: postgresql, host: 127.0.0.1, port: 1, user: app, database: shop}
mysql-instances:
  - source-id: north
    from: {host: 127.0.0.1, port: 1, user: repl}
    block-allow-list: shop
    route-rules: [all, north]
    syncer-config-name: quick
  - source-id: south
    from: {host: 127.0.0.1, port: 2, user: repl}
    enable-gtid: true
    case-sensitive: true
    block-allow-list: rest
    route-rules: [all]
    filter-rules: [kept]
    mydumper-config-name: slow
block-allow-list: {shop: {do-dbs: [shop]}, rest: {do-dbs: [rest]}, none: {do-dbs: [x]}}
routes:
  all: {schema-pattern: "*", target-schema: one}
  north: {schema-pattern: shop, table-pattern: a, target-schema: one, target-table: b}
filters: {kept: {schema-pattern: rest, events: [drop table], action: Ignore}}
syncers: {quick: {worker-count: 4}}
mydumpers: {slow: {threads: 1}}
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def text(content: str) -> Path:
        path = tmp_path / "task.yaml"
        path.write_text(content)
        return path

    return text


def test_each_source_has_a_configuration_of_its_own(write: Write) -> None:
    north, south = load_parts(path := write(TASK), {})
    assert [part.source.source_id for part in (north, south)] == ["north", "south"]
    assert (north.source.server.port, south.source.server.port) == (1, 2)
    assert (north.source.use_gtid, south.source.use_gtid) == (False, True)
    assert (north.allow.case_sensitive, south.allow.case_sensitive) == (False, True)
    assert (north.workers, south.workers) == (4, 1)
    assert (north.limits.threads, south.limits.threads) == (4, 1)
    assert north.rules.target_name(TableName("shop", "a")) == TableName("one", "b")
    assert south.rules.target_name(TableName("rest", "a")) == TableName("one", "a")
    assert ([rule.name for rule in north.rule_names], len(south.rules.events.rules)) == (["all", "north"], 1)
    assert not north.rules.events.rules
    assert north.allow(TableName("shop", "a"))
    assert not south.allow(TableName("shop", "a"))
    for part in (north, south):
        assert (part.name, part.shard_mode, part.relay, part.path) == ("shops", "pessimistic", north.relay, path)
        assert [note.partition(": ")[2] for note in part.notes] == [
            "block-allow-list.none: no effect: no instance uses it"
        ]
    assert load_part(path, "south") == south


def test_settings_for_a_single_source_are_refused_for_several(write: Write) -> None:
    path = write(TASK)
    with pytest.raises(ConfigError, match="2 sources") as caught:
        load_task(path, {})
    assert caught.value.code == "several-sources"
    with pytest.raises(ConfigError, match="'nroth'") as caught:
        load_part(path, "nroth")
    assert (caught.value.code, caught.value.todo) == ("unknown-name", "Did you mean 'north'?")


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ("source-id: south", "source-id: north", "duplicate-key", 11),
        ("route-rules: [all, north]", "route-rules: [all]", "unused-name", 22),
        ("syncer-config-name: quick", "syncer-config-name: slow", "unknown-name", 10),
        ("    mydumper-config-name: slow\n", "", "unused-name", 24),
        ("    filter-rules: [kept]\n", "", "unused-name", 22),
        ("    from: {host: 127.0.0.1, port: 2, user: repl}\n", "", "unknown-name", 11),
    ],
)
def test_mistakes_are_reported_with_the_line_of_their_instance(
    write: Write, old: str, new: str, code: str, line: int
) -> None:
    assert old in TASK
    with pytest.raises(ConfigError) as caught:
        load_parts(write(TASK.replace(old, new)), {})
    assert (caught.value.code, caught.value.where.line) == (code, line)


@pytest.mark.parametrize(
    ("lines", "mode", "notes"),
    [
        ("", "", 0),
        ("is-sharding: true", "pessimistic", 0),
        ("is-sharding: true\nshard-mode: optimistic", "optimistic", 0),
        ("is-sharding: false\nshard-mode: optimistic", "optimistic", 0),
        ("shard-mode: optimistic\nstrict-optimistic-shard-mode: true", "optimistic", 1),
        ("shard-mode: optimistic\nstrict-optimistic-shard-mode: false", "optimistic", 0),
    ],
)
def test_how_schema_changes_are_brought_together(write: Write, lines: str, mode: str, notes: int) -> None:
    parts = load_parts(write(TASK.replace("shard-mode: pessimistic", lines)), {})
    assert {part.shard_mode for part in parts} == {mode}
    assert [len([note for note in part.notes if "shard" in note]) for part in parts] == [notes, notes]


@pytest.mark.parametrize("mode", ["shard-mode: pessimistic", "is-sharding: true", ""])
def test_the_strict_kind_of_another_mode_is_refused(write: Write, mode: str) -> None:
    text = TASK.replace("shard-mode: pessimistic", f"{mode}\nstrict-optimistic-shard-mode: true")
    with pytest.raises(ConfigError, match="shard-mode: optimistic") as caught:
        load_parts(write(text), {})
    assert (caught.value.code, caught.value.where.line) == ("bad-value", 4)


def test_a_command_over_several_sources_names_each_that_cannot_be_asked(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["check", str(write(TASK)), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["findings"]
    reported = {(one["item"], one["message"].partition(":")[0]) for one in found if not one["ok"]}
    assert {("source_connection", "north"), ("source_connection", "south")} <= reported
    assert sum(one["item"] == "target_connection" for one in found) == 1, "it is the same for all"


def test_other_accounts_to_look_with_are_given_for_each_source(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["--source", "mysql://root@127.0.0.1:1/"]
    assert run_command(["grants", str(write(TASK)), *one]) == 2
    assert "given 1 times, and the task has 2 sources: north, south" in capsys.readouterr().err
    assert run_command(["grants", str(write(TASK)), *one, *one]) == 1, "nobody is there"


def resynced(path: Path, monkeypatch: pytest.MonkeyPatch, *patterns: str) -> list[tuple[str, ...] | None]:
    parts = load_parts(path, {})
    tables = {"north": {TableName("shop", "a"), TableName("shop", "b")}, "south": {TableName("rest", "a")}}

    def tables_of(part: TaskConfig) -> set[TableName]:
        return tables[part.source.source_id]

    monkeypatch.setattr("pidts.task.tables.copy_start._tables_of", tables_of)
    return list(resync_of(parts, patterns).values())


def test_tables_to_be_copied_once_more_are_those_of_whatever_source_has_them(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(TASK)
    assert resynced(path, monkeypatch) == [(), ()]
    assert resynced(path, monkeypatch, "shop.a") == [("shop.a",), None]
    assert resynced(path, monkeypatch, "*.a", "shop.b") == [("*.a", "shop.b"), ("*.a",)]
    assert resynced(path, monkeypatch, "south:*.a") == [None, ("*.a",)]
    assert resynced(path, monkeypatch, "south:", "south:*.a") == [None, ()]
    for pattern in ("shop.c", "south:shop.a", "east:shop.a"):
        with pytest.raises(ConfigError, match=pattern):
            resynced(path, monkeypatch, "shop.a", pattern)
    with pytest.raises(ConfigError) as refused:
        resynced(path, monkeypatch, "one.b")
    assert "takes names on the source" in refused.value.what
    assert refused.value.todo == "Give the names on the source: --resync north:shop.a,north:shop.b"
    with pytest.raises(ConfigError) as refused:
        resynced(path, monkeypatch, "nothing.b")
    assert "names on the source" not in refused.value.what
    parts = load_parts(path, {})
    assert list(resync_of(parts, None).values()) == [None, None]
    assert resync_of(parts[:1], ("a.b", "north:c.d")) == {"north": ("a.b", "c.d")}
    assert resync_of(parts[:1], ("north:",)) == {"north": ()}


class Locks:
    """The waiting schema changes of one process."""

    def __init__(self) -> None:
        self.waiting: tuple[ShardLock, ...] = ()
        self.group: tuple[Member, ...] = ()
        self.versions: tuple[Column, ...] = ()
        """The version columns of all shards."""

    def locks(self) -> tuple[ShardLock, ...]:
        return self.waiting

    def tables(self, source: str) -> tuple[TableName, ...]:
        return tuple(one.table for one in self.group if one.source == source)

    def members(self, target: TableName) -> tuple[Member, ...]:
        assert target == TableName("one", "a")
        return self.group

    def structures(self, target: TableName) -> tuple[Table, ...]:
        columns = (Column("id", ColumnType(Kind.INT), nullable=False), *self.versions)
        return tuple(
            Table(target, columns, (Key("PRIMARY", ("id",), unique=True, primary=True),)) for _ in self.members(target)
        )


@pytest.fixture
def reload(write: Write, monkeypatch: pytest.MonkeyPatch) -> tuple[ConfigReload, Locks, list[str], set[str]]:
    """Returns a reload of the file for the parts of two sources.

    The servers refuse the changes of the sources in `refusing`.
    """
    shown: list[str] = []
    refusing: set[str] = set()
    locks = Locks()

    def refusal(_: TaskConfig, config: TaskConfig, beside: Sequence[TaskConfig]) -> str:
        assert [one.source.source_id for one in beside] != [config.source.source_id]
        return "no" if config.source.source_id in refusing else ""

    monkeypatch.setattr("pidts.task.run.config_reload._refusal", refusal)
    monkeypatch.setattr("pidts.task.run.config_reload._LOOK_SECONDS", 0.0)
    found = ConfigReload(load_parts(write(TASK), {}), shown.append, locks)  # type: ignore[arg-type]  # all that is asked of it
    return found, locks, shown, refusing


def test_all_sources_take_a_change_of_the_file_over_or_none(
    write: Write, reload: tuple[ConfigReload, Locks, list[str], set[str]]
) -> None:
    watch, _, found, refusing = reload
    north, south = watch.parts

    def look() -> list[TaskConfig | None]:
        return [watch.look(part) for _ in range(3) for part in (north, south)][-2:]

    assert look() == [None, None]
    changed = TASK.replace("shop: {do-dbs: [shop]}", "shop: {do-dbs: [shop, more]}").replace("[rest]}", "[rest, s]}")
    refusing.add("south")
    write(changed)
    assert look() == [None, None]
    assert "the running task ignores the change: source south: no" in found[-1]

    refusing.clear()
    write(changed + "\n")
    new_north, new_south = look()
    assert new_north is not None
    assert new_south is not None
    assert (new_north.allow(TableName("more", "t")), new_south.allow(TableName("s", "t"))) == (True, True)
    assert watch.look(new_north) is None, "it runs with it now"

    write((TASK + "\n").replace("source-id: south", "source-id: west"))
    look()
    assert "mysql-instances will take effect at the next start" in found[-1]


def test_a_part_that_turns_to_a_standby_keeps_what_another_part_took_over(
    write: Write, reload: tuple[ConfigReload, Locks, list[str], set[str]]
) -> None:
    watch, _, _, _ = reload
    north, south = watch.parts
    assert [watch.look(north) for _ in range(3)] == [None, None, None]
    write(TASK.replace("[rest]}", "[rest, s]}"))
    for _ in range(3):
        watch.look(north)
    standby = replace(south.source, server=replace(south.source.server, port=3))
    moved = watch.moved(standby)
    assert moved.source == standby
    assert moved.allow(TableName("s", "t"))
    assert watch.look(moved) is None, "it runs with it now"


def test_routes_stay_while_tables_wait_for_each_other(
    write: Write, reload: tuple[ConfigReload, Locks, list[str], set[str]]
) -> None:
    watch, locks, found, _ = reload
    member = Member("north", TableName("shop", "a"))
    locks.waiting = (ShardLock(target=TableName("one", "a"), text="ALTER", first=member, since=0.0, arrived=()),)
    for text, refused in (
        (TASK.replace("target-table: b", "target-table: c"), True),
        (TASK.replace("[shop]", "[shop, more]"), False),
    ):
        write(text)
        taken = [watch.look(watch.parts[0]) for _ in range(3)]
        assert ("shard-lock-open" in "".join(found)) is refused, found
        assert watch.parts[0].allow(TableName("more", "t")) is not refused
        assert not any(taken) or not refused
        found.clear()


@pytest.mark.parametrize("merged", [False, True])
def test_a_running_task_with_merged_tables_does_not_begin_to_lock_rows(
    write: Write, reload: tuple[ConfigReload, Locks, list[str], set[str]], merged: bool
) -> None:
    """Rows of merged tables are not compared, so they would be overwritten, and not locked."""
    watch, locks, found, _ = reload
    text = TASK.replace("shard-mode: pessimistic\n", "")
    write(text)
    for _ in range(3):
        watch.look(watch.parts[0])
    found.clear()
    south = Member("south", TableName("rest", "a"))
    locks.group = (south, Member("south", TableName("more", "a"))) if merged else (south,)
    write(text + "pidts: {on-divergence: lock}\n")
    for _ in range(3):
        watch.look(watch.parts[1])
    assert (watch.parts[1].on_divergence is OnDivergence.LOCK) is not merged
    assert ("rest.a, more.a are merged into one.a: rows of merged tables cannot be locked" in "".join(found)) is merged


@pytest.mark.parametrize("versions", [(), (Column("v", ColumnType(Kind.INT), nullable=False),)])
@pytest.mark.usefixtures("reload")
def test_a_running_task_with_merged_tables_begins_to_lock_rows_if_versions_decide_about_all_shards(
    write: Write, versions: tuple[Column, ...]
) -> None:
    """A start accepts the same task file."""
    text = TASK.replace("shard-mode: pessimistic\n", "")
    found, locks = list[str](), Locks()
    path = write(text + "pidts: {version-column: v}\n")
    watch = ConfigReload(load_parts(path, {}), found.append, locks)  # type: ignore[arg-type]  # all that is asked of it
    locks.group = (Member("south", TableName("rest", "a")), Member("south", TableName("more", "a")))
    locks.versions = versions
    write(text + "pidts: {version-column: v, on-divergence: lock}\n")
    for _ in range(3):
        watch.look(watch.parts[1])
    assert (watch.parts[1].on_divergence is OnDivergence.LOCK) is bool(versions), found


def test_a_running_task_that_locks_rows_takes_edits_although_tables_are_merged(
    write: Write, reload: tuple[ConfigReload, Locks, list[str], set[str]]
) -> None:
    """It has begun with these tables because versions decide about all of their rows."""
    watch, locks, _, _ = reload
    text = TASK.replace("shard-mode: pessimistic\n", "")
    south = Member("south", TableName("rest", "a"))
    locks.group = (south,)
    for keys, limit in (("on-divergence: lock", 1000), ("on-divergence: lock, lock-limit: 5", 5)):
        write(f"{text}pidts: {{{keys}}}\n")
        for _ in range(3):
            watch.look(watch.parts[1])
        assert (watch.parts[1].on_divergence, watch.parts[1].lock_limit) == (OnDivergence.LOCK, limit)
        locks.group = (south, Member("south", TableName("more", "a")))


def test_the_first_failure_ends_all_and_names_its_source() -> None:
    cleaned: list[str] = []

    def follows(ended: threading.Event) -> None:
        assert ended.wait(10)
        cleaned.append("north")

    def fails(_: threading.Event) -> None:
        raise Halted("position-lost", "gone")

    with pytest.raises(Halted, match="source south"):
        side_by_side({"north": follows, "south": fails}, threading.Event())
    assert cleaned == ["north"]


def test_the_users_stop_ends_all() -> None:
    stop, cleaned = threading.Event(), []

    def follows(ended: threading.Event) -> None:
        stop.set()
        assert ended.wait(10)
        cleaned.append(1)

    side_by_side({"north": follows, "south": follows}, stop)
    assert cleaned == [1, 1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("pidts.task.run.goal.time.monotonic", lambda: now[0])
    return now


def test_a_single_part_is_over_when_it_arrives(clock: list[float]) -> None:
    completion = RunCompletion(1)
    assert not completion.found("one", arrived=False)
    assert completion.found("one", arrived=True)


def test_parts_are_over_when_each_was_found_there_once_more_after_the_last_came(clock: list[float]) -> None:
    completion = RunCompletion(2)
    assert not completion.found("one", arrived=True)
    clock[0] += 100
    assert not completion.found("two", arrived=True), "the first may have been let go on just now"
    clock[0] += 2
    assert not completion.found("two", arrived=True)
    assert not completion.found("one", arrived=False), "so it was"
    clock[0] += 2
    assert not completion.found("two", arrived=True)
    assert not completion.found("one", arrived=True)
    clock[0] += 2
    assert not completion.found("two", arrived=True)
    assert completion.found("one", arrived=True)
    assert completion.found("two", arrived=False), "whatever comes after that is another day's"


def test_an_action_of_one_part_for_another_makes_both_check_again(clock: list[float]) -> None:
    moves = 0
    completion = RunCompletion(2, lambda: moves)
    for source in ("one", "two"):
        assert not completion.found(source, arrived=True)
    moves += 1
    for _ in range(2):
        assert not completion.found("one", arrived=True)
        clock[0] += 2
    for _ in range(2):
        assert not completion.found("two", arrived=True)
        clock[0] += 2
    assert not completion.found("two", arrived=True)
    assert completion.found("one", arrived=True)


def part(source: str, stage: Stage, *, message: str = "", halted: bool = False, lag: float | None = None) -> Progress:
    halts = (Halt(tables=(TableName("a", "t"),), lsn=Lsn(0, 3, 42), code="x", what="y"),) if halted else ()
    position = Position("bin.000003", 42)
    own = SourceProgress(source=source, stage=stage, position=position, lag_seconds=lag, halted=halts)
    return Progress(
        task="t",
        rows={"inserted": 1, "copied": 2},
        batches=3,
        seconds=4.0,
        rate=5.0,
        tables=(TableProgress(name="a.t", done=True),),
        message=message,
        sources=(own,),
    )


@pytest.mark.parametrize(
    ("stages", "stage"),
    [
        (("sync", "copy"), "copy"),
        (("paused", "starting"), "paused"),
        (("synced", "synced"), "synced"),
        (("synced", "halted"), "halted"),
        (("stopped", "paused"), "paused"),
    ],
)
def test_a_task_is_in_the_stage_that_says_most(stages: tuple[Stage, Stage], stage: Stage) -> None:
    assert combined([part(source, one) for source, one in zip("ab", stages, strict=True)]).stage == stage


def test_the_picture_of_several_sources_is_their_sum_and_names_each() -> None:
    reported: list[Progress] = []
    board = CombinedProgress(reported.append)
    board.of("a")(part("a", "sync", lag=1.0))
    assert reported[-1].to_json()["applied"]["position"] == 42, "one alone is shown as ever"
    board.of("b")(part("b", "sync", lag=3.0, message="waits", halted=True))
    both = reported[-1]
    assert (both.rows, both.batches, both.rate, both.seconds) == ({"inserted": 2, "copied": 4}, 6, 10.0, 4.0)
    assert (both.to_json()["applied"]["file"], both.lag_seconds, both.message) == (None, 3.0, "b: waits")
    assert [str(table) for table in both.tables] == ["a: a.t", "b: a.t"]
    said = both.to_json()
    assert [(one["source"], one["stage"], one["lag_seconds"]) for one in said["sources"]] == [
        ("a", "sync", 1.0),
        ("b", "sync", 3.0),
    ]
    assert [one["source"] for one in said["halted"]] == ["b"]
    assert [one["source"] for one in said["tables"]] == ["a", "b"]
    board.of("a")(part("a", "sync", message="waits"))
    assert reported[-1].message == "waits"


def test_an_error_stays_of_its_kind_beside_another_source() -> None:
    def fails(_: threading.Event) -> None:
        raise Transient("spark-died", "gone")

    def waits(ended: threading.Event) -> None:
        ended.wait(10)

    with pytest.raises(Transient) as caught:
        side_by_side({"north": waits, "south": fails}, threading.Event())
    assert caught.value.where.source == "south"


@pytest.mark.parametrize("sources", [("north",), ("north", "south")])
def test_log_lines_about_a_source_name_it(sources: tuple[str, ...]) -> None:
    with capture_logs([merge_contextvars]) as lines:
        side_by_side(
            {source: lambda _: structlog.get_logger().info("gone on") for source in sources}, threading.Event()
        )
    assert sorted(line["source"] for line in lines) == [*sources]
