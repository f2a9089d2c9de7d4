"""Each view and each action of the page works in a real browser, over a real service with a real task.

The tests share one service and one task, which copies from MariaDB to PostgreSQL. Each test leaves the task in sync.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.page.browser import Browser
from tests.running import connect
from tests.service.serving import Service, serving, wait_for

from pidts.sandbox import Server
from pidts.sandbox.server import free_port

RunSql = Callable[..., list[tuple[Any, ...]]]
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

SCHEMA = "shop"
MANY = 200
HOSTILE = "<img src=x onerror=alert(1)>"
TABLES = ("customers", "items", "orders")
new_ids = itertools.count(1_000_000)
TOKEN = "a-token-that-only-this-test-knows"
VIEWS = ("", "new", *(f"tasks/{SCHEMA}/{tab}" for tab in ("now", "tables", "schema", "rows", "verify", "log", "file")))


class Shop:
    """The servers and the service of these tests."""

    def __init__(self, service: Service, source: Server, target: Server, run_sql: RunSql) -> None:
        self.service, self.source, self.target, self._run_sql = service, source, target, run_sql

    def on_source(self, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.source, statement)

    def on_target(self, statement: str) -> list[tuple[Any, ...]]:
        return self._run_sql(self.target, statement, database=SCHEMA)

    def file(self, name: str, changed: Mapping[str, str] | None = None) -> str:
        source, target = self.source, self.target
        text = f"""\
name: {name}
task-mode: all
target-database:
  type: postgresql
  host: {target.host}
  port: {target.port}
  user: {target.user}
  password: "{target.password}"
  database: {SCHEMA}
mysql-instances:
  - source-id: shop-1
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: shop
block-allow-list: {{shop: {{do-dbs: [{SCHEMA}]}}}}
pidts: {{on-divergence: lock}}
"""
        for old, new in (changed or {}).items():
            assert old in text
            text = text.replace(old, new)
        return text

    def in_sync(self) -> None:
        self.service.wait_for_stage(SCHEMA, "sync")

    def arrives(self, table: str) -> None:
        """Waits until the target has all rows of the source."""
        query = f"SELECT id, name, amount FROM {SCHEMA}.{table} ORDER BY id"
        wait_for(lambda: self.on_source(query) == self.on_target(query), lambda: self.service.task(SCHEMA))


@pytest.fixture(scope="module")
def shop(
    mariadb: Server, postgres: Server, run_sql: RunSql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """Starts a service without tasks, and servers with a small shop."""
    run_sql(mariadb, f"DROP DATABASE IF EXISTS {SCHEMA}")  # Other tests on this server may have left their tables.
    run_sql(mariadb, f"CREATE DATABASE {SCHEMA}")
    run_sql(postgres, f"DROP DATABASE IF EXISTS {SCHEMA} WITH (FORCE)")
    run_sql(postgres, f"CREATE DATABASE {SCHEMA}")
    for table in TABLES:
        run_sql(mariadb, f"CREATE TABLE {SCHEMA}.{table} (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(8,2))")
        run_sql(
            mariadb,
            f"INSERT INTO {table} SELECT seq, CONCAT('name ', seq), seq / 7 FROM seq_1_to_5000",
            database=SCHEMA,
        )
    run_sql(mariadb, f"ALTER TABLE {SCHEMA}.orders ADD COLUMN extra INT")
    run_sql(mariadb, f"CREATE TABLE {SCHEMA}.`{HOSTILE}` (id INT PRIMARY KEY, `<b>bold</b>` VARCHAR(40))")
    with serving(tmp_path_factory.mktemp("page"), "--listen", f"127.0.0.1:{free_port()}") as service:
        yield Shop(service, mariadb, postgres, run_sql)
    run_sql(mariadb, f"DROP DATABASE {SCHEMA}")
    run_sql(postgres, f"DROP DATABASE {SCHEMA} WITH (FORCE)")


@pytest.fixture(scope="module")
def synced(shop: Shop, chromium: Browser) -> Shop:
    """Returns the shop with a task in sync, which was created by pasting its file into the page."""
    chromium.look()
    chromium.open("", shop.service.url)
    chromium.sees("There is no task yet")
    chromium.click("main a", "Create a task")
    chromium.write("#task-text", shop.file(SCHEMA))
    chromium.click("button", "Check")
    chromium.sees(f"The task {SCHEMA} can be created")
    chromium.picture("new")
    chromium.click("button", "Create")
    chromium.sees("in sync", "h1", seconds=300)
    return shop


def test_a_file_with_a_mistake_is_refused_at_its_line(browser: Browser, shop: Shop) -> None:
    browser.open("new", shop.service.url)
    browser.write("#task-text", shop.file("wrong", {"mode: all": "mode: al"}))
    browser.click("button", "Check")
    browser.sees("Line 2 of the task file")
    assert "task-mode: al" in browser.text(".excerpt .at")
    assert not browser.one("button.main + button").is_enabled()  # Create
    browser.write("#task-text", shop.file("wrong", {"mode: all": "mode: al", "do-dbs": "do-dbz"}))
    browser.click("button", "Check")
    browser.sees("Lines 2, 14 of the task file")
    assert browser.text(".error .what").splitlines()[1].strip().startswith("line 2: [bad-value]")
    assert "/tasks/" not in browser.text(".error"), "the folder of a draft is nobody's business"
    assert [one.text.split()[0] for one in browser.all(".excerpt .at")] == ["2", "14"]


def test_a_run_that_has_ended_names_its_error_beside_halted_tables(browser: Browser, shop: Shop) -> None:
    """An operator who sees only the table would repair it, and the next run would end with the same error."""
    browser.open("", shop.service.url)

    def needs(**task: Any) -> list[str]:
        script = "return import(new URL('parts.js', document.baseURI)).then((parts) => parts.needs(arguments[0]))"
        return [str(one["text"]) for one in browser.run(script, task)]

    error = {"what": "the login is refused", "code": "access-denied"}
    assert needs(halted=1, process=None, error=error) == ["1 halted table", "the login is refused"]
    assert needs(halted=1, process=7, error=error) == ["1 halted table"]
    repeated = {"halted": [{"what": error["what"]}]}
    assert needs(halted=1, process=None, error=error, progress=repeated) == ["1 halted table"]


def test_the_overview_follows_the_task(browser: Browser, synced: Shop) -> None:
    browser.open("", synced.service.url)
    browser.sees("in sync", ".tasks")
    assert "1 of 1 task running" in browser.text()
    browser.until(lambda: len(browser.all(".tasks svg.spark")) == 2, "both charts are there")
    for chart in browser.all(".tasks svg.spark"):
        assert "over the last hour" in chart.accessible_name
    with writing(synced):
        browser.until(
            lambda: float(browser.text(".tasks .rate b").split()[0].replace(",", "")) > 5, "the rate is shown"
        )
        browser.picture("overview", 280)


@pytest.mark.long
def test_the_stages_of_a_change_are_shown(browser: Browser, synced: Shop) -> None:
    browser.open(f"tasks/{SCHEMA}", synced.service.url)
    browser.sees("Target", ".stages")
    assert browser.text(".stages h3").split() == ["Source", "Relay", "Plan", "Apply", "Target"]
    with writing(synced):
        browser.until(lambda: number(browser, "Inserted") > 100, "rows are counted")
        browser.until(
            lambda: "rows/s" in browser.text('.stages [data-stage="target"], .stages [data-stage="apply"]'), "a rate"
        )
        browser.picture("task", 640)


def test_each_action_does_what_its_button_says(browser: Browser, synced: Shop) -> None:
    browser.open(f"tasks/{SCHEMA}", synced.service.url)
    browser.click("[data-action=pause]")
    browser.sees("paused", "h1")
    assert synced.service.process_of(SCHEMA) is None
    browser.click("[data-action=resume]")
    browser.sees("in sync", "h1")
    browser.click("[data-action=stop]")
    browser.sees("stopped", "h1")
    browser.sees("Delete")
    browser.click("[data-action=start]")
    browser.sees("in sync", "h1")
    synced.in_sync()


@pytest.mark.long
def test_tables_are_shown_by_their_names_whatever_these_are(browser: Browser, synced: Shop) -> None:
    synced.on_source(f"INSERT INTO {SCHEMA}.`{HOSTILE}` VALUES (1, '<i>1</i>')")
    browser.open(f"tasks/{SCHEMA}/tables", synced.service.url)
    browser.sees(f"{SCHEMA}.{HOSTILE}", ".copy")
    browser.picture("tables", 560)
    browser.click("button", "Show the plan")
    browser.sees("about 5,", ".previews")
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.sees("<b>bold</b>", ".previews")
    assert browser.all("main img, main script, .previews td b") == []


def test_a_task_that_halts_while_one_watches_is_repaired_from_the_page(browser: Browser, synced: Shop) -> None:
    """The overview was opened before the halt, and the page is not loaded again."""
    browser.open("", synced.service.url)
    browser.sees("in sync", ".tasks")
    assert browser.all(".attention") == []
    synced.on_target(f"CREATE VIEW {SCHEMA}.extras AS SELECT extra FROM {SCHEMA}.orders")
    synced.on_source(f"ALTER TABLE {SCHEMA}.orders DROP COLUMN extra")
    browser.sees("1 halted table", ".attention")
    browser.sees("1 table halted", ".tasks .stage")
    assert browser.run("return document.title").startswith("(1)")
    browser.picture("halted-overview", 340)
    browser.click(".attention a", "1 halted table")
    browser.sees("DROP COLUMN extra", ".card")
    browser.click("[data-decision=skip]")
    browser.sees("the target does not run it", ".says")
    browser.picture("decision")
    assert synced.service.task(SCHEMA)["halted"] == 1  # The preview has done nothing.
    browser.click("button", "Cancel")
    browser.click("[data-decision=replace]")
    proposed = browser.one(".preview textarea").get_attribute("value") or ""
    assert proposed.endswith('DROP COLUMN IF EXISTS "extra"'), "what `pidts ddl list` proposes"
    browser.write(".preview textarea", f"DROP VIEW {SCHEMA}.extras; ALTER TABLE {SCHEMA}.orders DROP COLUMN extra")
    browser.click("button", "Preview")
    browser.sees("runs these statements instead", ".says")
    browser.click("[data-decision=yes]")
    browser.until(lambda: synced.service.task(SCHEMA)["halted"] == 0, "the halt is over")
    browser.sees_no("Halted", "h2")
    browser.sees("replace done", ".cards")
    synced.on_source(f"INSERT INTO {SCHEMA}.orders VALUES (900001, 'after', 1)")
    synced.arrives("orders")
    browser.go(f"tasks/{SCHEMA}")
    synced.on_source(f"ALTER TABLE {SCHEMA}.orders ADD COLUMN later INT")
    browser.sees("ADD COLUMN later INT", ".changes")


@pytest.mark.long
def test_rows_that_differ_are_resolved_from_the_page(browser: Browser, synced: Shop) -> None:
    browser.open(f"tasks/{SCHEMA}/rows", synced.service.url)
    browser.sees("No rows are set aside")
    for number_, text in ((7, "<u>seven</u>"), (8, "eight")):
        synced.on_target(f"UPDATE {SCHEMA}.customers SET name = '{text}' WHERE id = {number_}")
        synced.on_source(f"UPDATE {SCHEMA}.customers SET amount = 99 WHERE id = {number_}")
    browser.until(lambda: len(browser.all(".card.row")) == 2, "both rows are listed")
    browser.click(".reveal", "7")
    browser.sees("<u>seven</u>", ".sides")
    browser.click("[data-take=source]")
    browser.sees("1 row would be resolved", ".preview")
    browser.picture("rows")
    assert synced.on_target(f"SELECT name FROM {SCHEMA}.customers WHERE id = 7") == [("<u>seven</u>",)]
    browser.click("[data-take=yes]")
    browser.sees("1 row resolved")
    wait_for(
        lambda: synced.on_target(f"SELECT name, amount FROM {SCHEMA}.customers WHERE id = 7")[0][0] == "name 7",
        lambda: synced.service.task(SCHEMA),
    )
    browser.click(".preview button", "Close")
    browser.click(".reveal", "8")
    browser.click("[data-take=set]")
    browser.write(".values .field:nth-of-type(2) input", "by hand")
    browser.click("button", "Preview")
    browser.sees("by hand", ".outcome")
    browser.click("[data-take=yes]")
    browser.sees("No rows are set aside")
    assert synced.on_target(f"SELECT name FROM {SCHEMA}.customers WHERE id = 8") == [("by hand",)]
    synced.on_source(f"UPDATE {SCHEMA}.customers SET name = 'by hand' WHERE id = 8")


@pytest.mark.long
def test_a_comparison_shows_its_result_and_the_repair(browser: Browser, synced: Shop) -> None:
    synced.on_target(f"DELETE FROM {SCHEMA}.items WHERE id = 17")
    browser.open(f"tasks/{SCHEMA}/verify", synced.service.url)
    browser.write("main input[type=text]", f"{SCHEMA}.items")
    browser.click("[data-run=verify]")
    browser.sees("1 difference", ".run")
    assert "1 missing" in browser.text(".compared")
    assert "id=17" in browser.text(".examples")
    browser.picture("verify", 570)
    browser.click("[data-run=repair]")
    browser.sees("INSERT INTO", ".run .says")
    assert synced.on_target(f"SELECT count(*) FROM {SCHEMA}.items WHERE id = 17") == [(0,)]
    browser.click("button", "Repair the target")
    browser.click("button", "Write them")
    wait_for(
        lambda: synced.on_target(f"SELECT count(*) FROM {SCHEMA}.items WHERE id = 17") == [(1,)],
        browser.text,
    )
    browser.sees("1 row written", ".run")
    browser.click("[data-run=verify]")
    browser.sees("Equal", ".run")


def test_the_views_of_a_task_show_its_stages_its_log_and_its_file(browser: Browser, synced: Shop) -> None:
    browser.open(f"tasks/{SCHEMA}", synced.service.url)
    browser.sees("Target", ".stages")
    assert browser.text(".stages h3").split() == ["Source", "Relay", "Plan", "Apply", "Target"]
    browser.go(f"tasks/{SCHEMA}/log")
    browser.sees("the task begins", ".log-box")
    browser.picture("log")
    browser.write(".filter", "no line has this")
    browser.sees_no("the task begins", ".log-box")
    browser.go(f"tasks/{SCHEMA}/file")
    browser.sees("on-divergence: lock", ".source-text")


@pytest.mark.long
def test_the_task_file_is_shown_and_checked(browser: Browser, synced: Shop) -> None:
    browser.open(f"tasks/{SCHEMA}/file", synced.service.url)
    browser.sees("on-divergence: lock", ".source-text")
    browser.click("[data-run=check]")
    browser.sees("Ready to run", ".run")
    browser.sees("ok", ".findings")
    browser.picture("file")


def test_a_task_file_is_replaced_and_its_secrets_are_never_shown(browser: Browser, shop: Shop) -> None:
    name, secret = "kept", "hidden-word-7"
    file = shop.file(name, {f'password: "{shop.target.password}"\n': f'password: "{secret}"\n'})
    assert shop.service.call("POST", "/api/tasks?start=false", file)[0] == 201
    browser.open(f"tasks/{name}/file", shop.service.url)
    browser.sees("***", ".source-text")
    browser.click("button", "Replace the file")
    browser.until(lambda: "***" in browser.one("#replacement").get_attribute("value"), "the file is there to be edited")
    assert secret not in browser.run("return document.documentElement.outerHTML")
    text = browser.one("#replacement").get_attribute("value")
    browser.write("#replacement", text.replace("task-mode: all", "task-mode: wrong"))
    browser.click("button", "Save")
    browser.sees("task-mode", ".error")
    browser.write("#replacement", text.replace("task-mode: all", "task-mode: full"))
    browser.click("button", "Save")
    browser.sees("task-mode: full", ".source-text")
    assert secret in (shop.service.state / "tasks" / name / "task.yaml").read_text()
    assert shop.service.call("DELETE", f"/api/tasks/{name}")[0] == 200


@pytest.mark.long
def test_the_page_reports_a_missing_service_and_continues_with_the_next_one(browser: Browser, synced: Shop) -> None:
    browser.open("", synced.service.url)
    browser.sees("in sync", ".tasks")
    browser.run("window.notLoadedAnew = true")
    synced.service.kill()
    browser.sees("The service does not answer", "#gone")
    browser.sees("in sync", ".tasks")  # The last known state stays readable.
    synced.service.start()
    browser.sees("live", "header")
    browser.until(lambda: not browser.one("#gone").is_displayed(), "the notice goes")
    browser.sees("in sync", ".tasks")
    assert browser.run("return window.notLoadedAnew") is True


@pytest.mark.long
def test_each_view_fits_a_narrow_screen_in_light_and_dark(browser: Browser, synced: Shop) -> None:
    browser.open("", synced.service.url)
    grounds = set()
    for dark in (False, True):
        browser.look(380, 800, dark=dark)
        for view in VIEWS:
            browser.go(view)
            browser.sees_no("Loading …")
            browser.sees_no("Asking the target …")
            assert browser.overflow() <= 0, view
            if dark and view == f"tasks/{SCHEMA}/now":
                browser.picture("narrow-dark")
        grounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


@pytest.mark.long
def test_each_view_can_be_used_by_keyboard_and_screen_reader(browser: Browser, synced: Shop) -> None:
    browser.open("", synced.service.url)
    for view in VIEWS:
        browser.go(view)
        browser.sees_no("Loading …")
        assert browser.nameless() == [], view
        assert len(browser.all("h1")) == 1
        assert len(browser.all("main")) == 1
    browser.open("")
    browser.sees("in sync", ".tasks")
    reached = []
    for _ in range(12):
        browser.key("TAB")
        reached.append(browser.run("return document.activeElement.textContent"))
    controls = ["Skip to the content", "Tasks", "New task", SCHEMA, "Pause", "Stop"]
    assert [one for one in reached if one in controls][: len(controls)] == controls


@pytest.mark.long
def test_two_hundred_tables_are_shown_and_found(browser: Browser, shop: Shop) -> None:
    """No task runs: the test writes the report that a run with so many tables would write."""
    name = "many"
    made, _ = shop.service.call("POST", "/api/tasks?start=false", shop.file(name))
    assert made == 201
    tables = [
        {
            "name": f"{SCHEMA}.t{n}",
            "copied": n * 10,
            "estimate": 1500,
            "done": n > 150,
            "phase": "rows",
            "rate": 0.0,
            "eta_seconds": 90.0 if n == 5 else None,
        }
        for n in range(MANY)
    ]
    report = {"run": "none", "progress": {"task": name, "stage": "copy", "tables": tables, "halted": [], "sources": []}}
    (shop.service.state / "tasks" / name / "progress.json").write_text(json.dumps(report))
    browser.open(f"tasks/{name}/tables", shop.service.url)
    browser.until(lambda: len(browser.all(".copy tbody tr")) == MANY, "all tables are listed")
    assert "1 min 30 s" in browser.text(".copy tbody")
    browser.write(".filter", "t19")
    browser.until(lambda: len(browser.all(".copy tbody tr")) == 11, "the filter leaves t19 and t190 to t199")
    began = time.monotonic()
    browser.run("document.querySelector('.filter').value = ''")
    browser.write(".filter", "t7")
    browser.until(lambda: len(browser.all(".copy tbody tr")) == 11, "t7 and t70 to t79")
    assert time.monotonic() - began < 10
    assert shop.service.call("DELETE", f"/api/tasks/{name}")[0] == 200
    browser.sees("does not exist any more")


@pytest.mark.long
def test_a_task_that_was_cut_over_has_ended_and_needs_no_operator(browser: Browser, shop: Shop) -> None:
    """No cutover runs: the test writes the records that a cutover leaves."""
    name = "over"
    assert shop.service.call("POST", "/api/tasks?start=false", shop.file(name))[0] == 201
    what = f"task {name} was cut over at 2026-03-01 02:10:44 UTC to postgresql; PiDTS has made source shop-1 read-only for it"
    error = {"code": "cut-over", "what": what, "where": {}, "todo": "The application may write to the target now"}
    folder = shop.service.state / "tasks" / name
    (folder / "wanted.json").write_text(json.dumps({"wanted": "running", "since": 1.0}))
    (folder / "ended.json").write_text(json.dumps({"run": "r", "at": 2.0, "exit_code": 5, "error": error}))
    shop.service.kill()
    shop.service.start()
    browser.open("", shop.service.url)
    browser.sees("was cut over at", ".tasks")
    assert "Needs an operator" not in browser.text()
    browser.go(f"tasks/{name}")
    browser.sees("cut over", "h1")
    browser.sees("The task is over", "h2")
    browser.sees("made source shop-1 read-only for it")
    assert browser.all(".attention") == []
    assert [one.text for one in browser.all(".title .buttons button")] == ["Start", "Stop"]
    shop.service.call("POST", f"/api/tasks/{name}/stop")
    assert shop.service.call("DELETE", f"/api/tasks/{name}")[0] == 200


@pytest.mark.long
def test_a_task_is_deleted_after_a_question(browser: Browser, shop: Shop) -> None:
    name = "short"
    assert shop.service.call("POST", "/api/tasks?start=false", shop.file(name))[0] == 201
    browser.open(f"tasks/{name}", shop.service.url)
    browser.click("button", "Delete")
    browser.click("button", "No")
    assert shop.service.call("GET", f"/api/tasks/{name}")[0] == 200
    browser.click("button", "Delete")
    browser.click("button", "Delete it")
    browser.until(lambda: browser.run("return location.hash") == "#/", "the overview")
    assert shop.service.call("GET", f"/api/tasks/{name}")[0] == 404


def test_a_service_with_a_token_asks_for_it(browser: Browser, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.touch(mode=0o600)
    secret.write_text(TOKEN)
    with serving(tmp_path, "--token-file", str(secret)) as service:
        browser.open("new", service.url)
        browser.write("input[name=token]", "another-token-of-enough-length")
        browser.click("button", "Log in")
        browser.sees("token", ".error")
        browser.picture("login", 420)
        browser.write("input[name=token]", TOKEN)
        browser.click("button", "Log in")
        browser.sees("New task", "h1")  # This view was requested before the login.
        browser.go("")
        browser.sees("There is no task yet")
        assert TOKEN not in browser.run("return document.cookie")


def number(browser: Browser, name: str) -> int:
    text = browser.run(
        "return [...document.querySelectorAll('.numbers > div')].find((e) => e.innerText.startsWith(arguments[0]))?.innerText",
        name,
    )
    return int(text.split("\n")[1].replace(",", "")) if text else 0


@contextmanager
def writing(shop: Shop) -> Iterator[None]:
    """Writes to the shop as long as the block lasts."""
    over = threading.Event()

    def write() -> None:
        connection = connect(shop.source)
        with closing(connection), connection.cursor() as cursor:
            while not over.wait(0.005):
                cursor.execute(f"INSERT INTO {SCHEMA}.items VALUES ({next(new_ids)}, 'new', 1)")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
