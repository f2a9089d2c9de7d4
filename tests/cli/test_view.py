"""A running task is shown as a live view on a terminal, and as a line every few seconds elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console

from pidts.cli import view
from pidts.cli.errors import remember_task
from pidts.cli.findings import show_report
from pidts.cli.lag_history import LagHistory
from pidts.model import Halt, Lsn, Position, TableName, Transient
from pidts.plan import Phase, PlanState
from pidts.replicate import ReceiveProblem
from pidts.task.operate.progress import Progress, SourceProgress, TableChanges, TableProgress
from pidts.task.run.tracker import Tracker
from pidts.verify import Report, TableReport

COPYING = Progress(
    task="shop",
    sources=(
        SourceProgress(
            source="shop-1",
            stage="copy",
            applied_lsn=Lsn(0, 3, 42),
            gtid="0-1-7",
            position=Position("bin.000003", 42),
            lag_seconds=0.25,
        ),
    ),
    rows={"inserted": 1, "updated": 2, "deleted": 3, "copied": 45_000},
    batches=9,
    seconds=12.0,
    rate=1234.5,
    tables=(
        TableProgress(name="a.waiting"),
        TableProgress(name="a.open", copied=500, estimate=1000, rate=100.0),
        TableProgress(name="a.ready", copied=44_500, done=True),
    ),
    message="[red]hello",
)


@pytest.fixture(autouse=True)
def no_task() -> None:
    """Forgets the task file that another test may have named in this process."""
    remember_task(None)


def test_the_lag_is_not_known_while_that_of_one_source_is_not() -> None:
    """A total of 0 s would hide a source whose lag nobody knows."""
    known = SourceProgress(source="a", stage="sync", lag_seconds=0.0)
    unknown = SourceProgress(source="b", stage="sync", lag_seconds=None)
    assert replace(COPYING, sources=(known, unknown)).lag_seconds is None
    assert replace(COPYING, sources=(known,)).lag_seconds == 0


def test_a_line_shows_everything() -> None:
    assert view.line(COPYING) == (
        "shop: copy; [red]hello; rows: 1 inserted, 2 updated, 3 deleted, 45,000 copied; lag 0.25 s; "
        "applied up to bin.000003:42; 1 of 3 tables copied; copying 100 rows/s, 0:05 to go"
    )


def test_a_line_says_what_is_done_with_a_table_whose_rows_are_copied() -> None:
    tables = (
        TableProgress(name="a.ready", copied=44_500, done=True),
        TableProgress(name="a.again", copied=500, estimate=500, rate=20.0, phase=Phase.EXTRAS, looked_up=40_000),
        TableProgress(name="a.next", copied=500, estimate=500, phase=Phase.FINISH),
    )
    looking = replace(COPYING, tables=tables)
    assert "; 1 of 3 tables copied; a.again: looking for rows that the source does not have: 40,000" in view.line(
        looking
    )
    assert "copying" not in view.line(looking)
    another = replace(looking, tables=(*tables, TableProgress(name="a.open", copied=1, estimate=1000, rate=5.0)))
    assert "copying 25 rows/s" in view.line(another)


def test_a_small_lag_is_reported_in_hundredths_of_a_second_and_zeros_that_say_nothing_are_left_out() -> None:
    for lag, said in (
        (None, "unknown"),
        (0.0, "0 s"),
        (0.004, "0 s"),
        (0.04, "0.04 s"),
        (0.7, "0.70 s"),
        (3.2, "3 s"),
        (7200.0, "7,200 s"),
    ):
        progress = replace(COPYING, sources=(replace(COPYING.sources[0], lag_seconds=lag),))
        assert f"; lag {said}; " in view.line(progress)
    assert view.row_counts({"inserted": 0, "copied": 0, "stale": 2, "removed": 0}) == "0 inserted, 2 skipped as older"


def test_the_lag_of_the_last_minute_is_drawn_once_it_was_a_second() -> None:
    history = LagHistory()
    for second, lag in enumerate((None, None, 0.4, 0.9)):
        history.take(lag, float(second))
    assert history.picture == ""
    for second, lag in enumerate((8.0, 4.0, 1.0, 0.5, 16.0, 0.0), 4):
        history.take(lag, float(second))
    assert history.picture == " ▁▄▁█"


def test_the_size_of_the_relay_is_reported_where_it_is_known() -> None:
    progress = replace(COPYING, sources=(replace(COPYING.sources[0], relay_bytes=3_200_000),))
    console = Console(width=200)
    with console.capture() as shown:
        console.print(view.live_picture(progress, "▁█"))
    assert "3.2 MB" in shown.get()
    assert "0.25 s ▁█" in shown.get()
    assert progress.to_json()["sources"][0]["relay_bytes"] == 3_200_000


def test_the_tables_that_change_most_are_shown_when_all_are_copied() -> None:
    busy = (TableChanges("a.busy", 9000, 1500.0), TableChanges("a.calm", 4, 0.5), TableChanges("a.idle", 7, 0.0))
    console = Console(width=200)
    for progress, shows in (
        (replace(COPYING, changed=busy, tables=COPYING.tables[2:]), True),
        (replace(COPYING, changed=busy), False),
    ):
        with console.capture() as shown:
            console.print(view.live_picture(progress))
        assert ("a.busy  1,500 rows/s  9,000 in this run" in shown.get()) is shows
        assert "a.idle" not in shown.get()


def test_halted_tables_are_named_in_both() -> None:
    halt = Halt(tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="target-refused", what="[too] long")
    progress = replace(COPYING, sources=(replace(COPYING.sources[0], halted=(halt,)),))
    assert view.line(progress).endswith("; halted shop.a: [target-refused]; see: pidts ddl list TASK")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(view.live_picture(progress))
    text = " ".join(shown.get().split())
    assert "halted shop.a: [target-refused] [too] long (at " in text
    assert "Then run: pidts ddl retry TASK --table shop.a --yes" in text
    assert progress.to_json()["halted"] == [halt.to_json()]


def test_the_oldest_change_of_waiting_tables_is_shown_in_both() -> None:
    for seconds, age in ((12.4, "12 s"), (200.0, "3 min"), (3725.0, "1 h 2 min")):
        source = replace(COPYING.sources[0], held_lag_seconds=seconds, held_tables=2)
        progress = replace(COPYING, sources=(source,))
        assert f"; 2 tables wait, the oldest change for {age}" in view.line(progress)
        console = Console(width=200)
        with console.capture() as shown:
            console.print(view.live_picture(progress))
        assert f"2 tables wait, the oldest change for {age}" in shown.get()
        assert progress.to_json()["sources"][0]["held_lag_seconds"] == seconds
    assert "wait" not in view.line(COPYING)


def test_several_sources_are_named() -> None:
    halt = Halt(tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="target-refused", what="too long")
    progress = replace(
        COPYING,
        tables=(TableProgress(name="a.open", source="north", estimate=1000),),
        sources=(
            SourceProgress(source="north", stage="copy", position=Position("bin.000003", 42), gtid="0-1-7"),
            SourceProgress(source="south", stage="sync", lag_seconds=12.0, halted=(halt,)),
        ),
    )
    assert "; north copy, lag unknown; south sync, lag 12 s; " in view.line(progress)
    assert "; halted south: shop.a: [target-refused]" in view.line(progress)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(view.live_picture(progress))
    shown = captured.get().splitlines()
    for words in (
        ("north", "copy", "bin.000003:42", "0-1-7"),
        ("south", "sync", "12 s"),
        ("north: a.open",),
        ("halted", "south: shop.a"),
    ):
        assert any(all(word in one for word in words) for one in shown), words


def test_only_the_first_of_many_halts_are_shown_with_those_that_need_an_operator_first() -> None:
    halts = [
        Halt(
            tables=(TableName("shop", f"t_{number}"),),
            lsn=Lsn(0, 3, 42),
            code="shard-awaits",
            what="others",
            awaits=("s: b",),
        )
        for number in range(570)
    ]
    odd = Halt(
        tables=tuple(TableName("shop", f"x_{number}") for number in range(9)),
        lsn=Lsn(0, 3, 42),
        code="target-refused",
        what="too long",
    )
    for progress in (
        replace(COPYING, sources=(replace(COPYING.sources[0], halted=(*halts, odd)),)),
        replace(
            COPYING,
            sources=tuple(
                SourceProgress(source=name, stage="sync", halted=found)
                for name, found in (("a", tuple(halts)), ("b", (odd,)))
            ),
        ),
    ):
        line = view.line(progress)
        assert len(line) < 700
        assert line.endswith("; and 568 more; see: pidts ddl list TASK")
        assert "shop.x_4 and 4 more: [target-refused]" in line
        assert "shop.t_1: [shard-awaits]" in line
        assert "shop.t_2:" not in line
        console = Console(width=120)
        with console.capture() as shown:
            console.print(view.live_picture(progress))
        assert "and 563 more. See: pidts ddl list" in shown.get()
        heads = [line.partition(" ")[0] for line in shown.get().splitlines() if ": [" in line]
        assert heads == ["halted", *["waiting"] * 7]
        assert "ddl retry" not in shown.get(), "the advice about many halts would fill the terminal"


def test_unknown_figures_are_not_shown() -> None:
    assert view.line(Progress(task="t")) == "t: starting"
    source = SourceProgress(source="s", stage="sync")
    assert view.line(Progress(task="t", sources=(source,))).endswith("0 rows/s; lag unknown")


def test_a_start_is_shown_by_its_step() -> None:
    assert view.line(Progress(task="t", message="step 1 of 3: checking the servers")) == (
        "t: starting; step 1 of 3: checking the servers"
    )


def test_lines_are_rare_unless_something_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    show = view.LineView()
    for _ in range(3):
        show(COPYING)
    show(Progress(task="shop", sources=(SourceProgress(source="shop-1", stage="sync"),)))
    assert [text.split(";")[0] for text in capsys.readouterr().err.splitlines()] == ["shop: copy", "shop: sync"]


def test_a_notice_is_printed_once_and_a_state_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [1000.0]
    show = view.LineView(lambda: clock[0])
    for is_notice, times in ((True, 1), (False, 3)):
        for _ in range(3):
            show(replace(COPYING, message="a is copied again", is_notice=is_notice))
            clock[0] += 2 * view.LINE_SECONDS
        lines = capsys.readouterr().err.splitlines()
        assert [line.count("a is copied again") for line in lines].count(1) == times
        assert len(lines) == 3


def test_a_line_about_a_pause_is_short_and_names_the_cause_and_the_next_attempt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = [1000.0]
    show, shown = view.LineView(lambda: clock[0]), list[Progress]()
    tracker = Tracker("shop", "s", shown.append, now=lambda: 1000.0)
    tracker.resumed(PlanState(Lsn(0, 1, 7699)), "", "bin.000001:7699")
    what = f"PostgreSQL at h:5432/shop has no free connection:\n{'very ' * 300}long"
    for error in (
        Transient("target-connections-used", what, todo="End sessions"),
        Transient("target-lost", "gone"),
        None,
    ):
        if error is not None:
            tracker.paused(error, 61.0)
        else:
            tracker.show("sync", caught_up=True)
        show(shown[-1])
        clock[0] += 2 * view.LINE_SECONDS
    lines = capsys.readouterr().err.splitlines()
    rest = "next attempt 00:17:41 UTC; lag unknown"
    assert lines[0].startswith("shop: paused; [target-connections-used] PostgreSQL at ")
    assert lines[0].endswith(f"…; {rest}")
    assert 95 <= len(lines[0]) <= 100
    assert lines[1] == f"shop: paused; [target-lost] gone; {rest}"
    assert lines[2].startswith("shop: sync; rows: ")
    assert "End sessions" in shown[0].message, "the view of a terminal has the advice"


def test_a_line_about_a_log_that_is_not_received_is_short_as_well() -> None:
    shown = list[Progress]()
    tracker = Tracker("shop", "s", shown.append)
    tracker.lacks(ReceiveProblem(Transient("source-lost", "word " * 50, todo="Start it"), 900.0, 990.0))
    tracker.show("sync", caught_up=True)
    assert view.line(shown[0]).startswith("shop: paused; [source-lost] word word word ")
    assert 95 <= len(view.line(shown[0])) <= 100


def test_a_table_that_waits_for_other_shards_is_not_called_halted() -> None:
    waits = Halt(
        tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="shard-awaits", what="others have not reached it"
    )
    progress = replace(COPYING, sources=(replace(COPYING.sources[0], halted=(waits,)),))
    assert view.line(progress).endswith("; waiting shop.a: [shard-awaits]; see: pidts ddl list TASK")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(view.live_picture(progress))
    assert "waiting shop.a: [shard-awaits] others have not reached it" in shown.get()
    assert "halted" not in shown.get()


def test_a_halt_is_printed_once_in_full_with_the_advice(capsys: pytest.CaptureFixture[str]) -> None:
    halt = Halt(tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="target-refused", what="too long")
    waits = replace(halt, tables=(TableName("shop", "b"),), code="shard-awaits", awaits=("s: c",))
    halted = replace(COPYING, sources=(replace(COPYING.sources[0], halted=(halt, waits)),))
    show = view.LineView()
    for progress in (halted, halted, replace(halted, message="other"), COPYING, halted):
        show(progress)
    said = capsys.readouterr().err.splitlines()
    whole = [text for text in said if text.startswith("shop: halted")]
    assert len(whole) == 2, "the halt has begun twice"
    assert whole[0].startswith("shop: halted shop.a: [target-refused] too long (at ")
    assert "pidts ddl retry TASK --table shop.a --yes" in whole[0]
    assert [text.count("too long") for text in said if text.startswith("shop: copy")] == [0] * 4


def test_a_halt_that_was_just_printed_in_full_is_not_printed_again_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = [100.0]
    show = view.LineView(lambda: clock[0])
    halts = [
        Halt(tables=(TableName("shop", f"t{n}"),), lsn=Lsn(0, 1, 4), code="target-refused", what="so") for n in range(4)
    ]
    show(replace(COPYING, sources=(replace(COPYING.sources[0], halted=tuple(halts)),)))
    source = COPYING.sources[0].source
    text = capsys.readouterr().err
    printed = [f"halted {halt.tables[0]}: " in text for halt in halts]
    assert printed == [True, True, True, False]
    assert [show.has_shown(source, halt) for halt in halts] == printed
    assert not show.has_shown("another", halts[0])
    assert not show.has_shown(source, replace(halts[0], todo="Do something else"))
    clock[0] += 3600
    assert not show.has_shown(source, halts[0]), "in a long run it was scrolled away"


def test_the_last_picture_shows_the_advice_about_a_few_halts() -> None:
    halts = [
        Halt(tables=(TableName("shop", f"t{n}"),), lsn=Lsn(0, 1, 4), code="target-refused", what="so") for n in range(3)
    ]
    source = COPYING.sources[0].source
    picture = view.Picture()
    assert not picture.has_shown(source, halts[0])
    picture(replace(COPYING, sources=(replace(COPYING.sources[0], halted=tuple(halts[:2])),)))
    assert [picture.has_shown(source, halt) for halt in halts] == [True, True, False]
    picture(replace(COPYING, sources=(replace(COPYING.sources[0], halted=tuple(halts)),)))
    assert not any(picture.has_shown(source, halt) for halt in halts), "of many halts it has no advice"


def test_halts_that_differ_only_in_their_statement_or_row_are_each_printed(capsys: pytest.CaptureFixture[str]) -> None:
    row = Halt(tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="target-refused", what="too long", key="id=7")
    halts = (row, replace(row, key="id=8"), replace(row, key="", statement="ALTER TABLE a ADD x INT", what="no room"))
    show = view.LineView()
    for _ in range(2):
        show(replace(COPYING, sources=(replace(COPYING.sources[0], halted=halts),)))
    whole = [text for text in capsys.readouterr().err.splitlines() if text.startswith("shop: halted")]
    assert len(whole) == 3
    for words, text in zip(("(key id=7)", "(key id=8)", "no room"), whole, strict=True):
        assert words in text


class _Unread(tuple[str, ...]):
    """A list that no snapshot looks at: a thousand waiting shards have a thousand lists of a thousand names."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise AssertionError

    def __eq__(self, other: object) -> bool:
        raise AssertionError


def test_the_lists_of_waiting_shards_are_not_read_for_each_snapshot() -> None:
    halt = Halt(tables=(TableName("shop", "a"),), lsn=Lsn(0, 3, 42), code="shard-awaits", what="waits")
    waits = replace(halt, awaits=_Unread(("s: c",)))
    halted = replace(COPYING, sources=(replace(COPYING.sources[0], halted=(waits, waits)),))
    show = view.LineView()
    show(halted)
    show(halted)


def test_each_of_many_halts_is_printed_a_few_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    halt = Halt(tables=(), lsn=Lsn(0, 3, 42), code="target-refused", what="too long")
    halts = tuple(replace(halt, tables=(TableName("shop", f"t{number}"),)) for number in range(5))
    halted = replace(COPYING, sources=(replace(COPYING.sources[0], halted=halts),))
    clock = [1000.0]
    show, told = view.LineView(lambda: clock[0]), []
    for seconds in (0.0, 1.0, 5.0, 20.0):
        clock[0] = 1000.0 + seconds
        show(halted)
        lines = capsys.readouterr().err.splitlines()
        told.append([text.split(": ")[1] for text in lines if text.startswith("shop: halted")])
    assert told == [
        ["halted shop.t0", "halted shop.t1", "halted shop.t2"],
        [],
        ["halted shop.t3", "halted shop.t4"],
        [],
    ]


def test_a_picture_shows_open_tables_first_and_takes_no_name_for_markup() -> None:
    console = Console(width=100, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view.live_picture(COPYING))
    shown = captured.get()
    assert "[red]hello" in shown
    assert shown.index("a.open") < shown.index("a.waiting")
    assert "500 of about 1,000" in shown
    assert "100 rows/s, 0:05 to go" in shown
    assert "1 copied" in shown
    assert "a.ready" not in shown


def test_the_object_for_machines_is_the_documented_one() -> None:
    assert COPYING.to_json() == {
        "task": "shop",
        "stage": "copy",
        "applied": {
            "lsn": "0000.0000000003.000000000042.0000000000",
            "gtid": "0-1-7",
            "file": "bin.000003",
            "position": 42,
        },
        "rows": {"inserted": 1, "updated": 2, "deleted": 3, "copied": 45_000},
        "tables": [
            {"name": "a.waiting", "copied": 0, "estimate": 0, "done": False, "phase": "rows"},
            {"name": "a.open", "copied": 500, "estimate": 1000, "done": False, "phase": "rows"},
            {"name": "a.ready", "copied": 44_500, "estimate": 0, "done": True, "phase": "rows"},
        ],
        "changed": [],
        "eta_seconds": 5.0,
        "batches": 9,
        "seconds": 12.0,
        "locked_rows": 0,
        "refetched": 0,
        "halted": [],
        "cause": None,
        "road": None,
        "sources": [
            {
                "source": "shop-1",
                "stage": "copy",
                "applied": {
                    "lsn": str(Lsn(0, 3, 42)),
                    "gtid": "0-1-7",
                    "file": "bin.000003",
                    "position": 42,
                },
                "lag_seconds": 0.25,
                "held_lag_seconds": None,
                "not_receiving": None,
                "relay_bytes": None,
                "warnings": [],
            }
        ],
    }


def test_nothing_to_compare_is_not_called_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_report("t", Report((), ()), as_json=False) == 4
    assert capsys.readouterr().out == "t: nothing to compare: the task has no table yet\n"
    assert show_report("t", Report((), ()), as_json=True) == 4
    assert json.loads(capsys.readouterr().out)["equal"] is False


def test_a_table_of_which_no_row_was_compared_is_not_called_equal(capsys: pytest.CaptureFixture[str]) -> None:
    tables = (
        TableReport(TableName("a", "some"), rows=2, not_compared=3),
        TableReport(TableName("a", "t"), not_compared=3),
    )
    assert show_report("t", Report(tables, ()), as_json=False) == 0
    some, none, _ = capsys.readouterr().out.splitlines()
    assert some.endswith("2 rows  equal; 3 rows not compared")
    assert none.endswith("0 rows  3 rows not compared")


def test_rows_of_a_task_that_does_not_run_wait(capsys: pytest.CaptureFixture[str]) -> None:
    why = "there are changes that are not applied, and PiDTS sees no run of the task"
    table = TableReport(TableName("a", "t"), rows=5, waiting=2, waits=(why,))
    assert show_report("t", Report((table,), ()), as_json=False) == 5
    said = capsys.readouterr().out
    assert "  2 waiting; " in said
    assert f"; {why}\n" in said
    assert "unsettled" not in said


def test_a_cause_for_which_several_tables_wait_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "there are changes that are not applied, and PiDTS sees no run of the task"
    counts = {"t": 2, "u": 1, "v": 0}
    tables = [TableReport(TableName("a", name), rows=5, waiting=count, waits=(why,)) for name, count in counts.items()]
    assert show_report("x", Report(tuple(tables), ()), as_json=False) == 5
    said = capsys.readouterr().out
    assert said.count(why) == 1
    assert f"  a.t, a.u, a.v: {why}\n" in said
    assert "  not compared yet (see below)\n" in said


def test_rows_that_are_set_aside_are_counted_beside_rows_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    tables = (TableReport(TableName("a", "t"), rows=9, missing=1, locked=3), TableReport(TableName("a", "u"), rows=1))
    assert show_report("x", Report(tables, ()), as_json=False) == 4
    assert capsys.readouterr().out.endswith("x: 1 difference, 3 rows are locked, 10 rows of 2 tables compared\n")
