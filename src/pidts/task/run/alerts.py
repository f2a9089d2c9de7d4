"""Reports the conditions of a run to an operator: starts a program, or sends a request to an address.

A condition is, for example, a halted table, or a lag that is too large. A condition is *open* from the first snapshot
of the progress that shows it, and *over* when no snapshot has shown it for a while. The beginning of each condition is
reported as `firing`, its end as `resolved`. An alert is one JSON document for the receiver. Conditions that begin or
end within a minute after a document are reported together in the next document. While the receiver does not answer,
new conditions are added to the waiting document. A condition that ends before it was reported is not reported at all.

A small file beside the relay contains the open and the reported conditions. A process may die at these points:

1. Before the file contains a condition: the next run finds the condition again, if it lasts.
2. After the file contains the condition, before the delivery: the next run delivers the document.
3. After the delivery, before the file records the delivery: the condition is reported twice. A receiver must expect
   repeated reports.
4. Before the file contains the end of a condition: the next run does not find the condition, and reports its end.
5. After the file contains a document about locked rows, before the target records that these rows were reported: the
   rows are reported twice. No report is lost, because the file is written first.

If the disk has no room for the file, a log line reports this, and the conditions are lost when the process ends. If a
document cannot be delivered at all, a log line contains the document.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from pidts.durable_folder import replace_file
from pidts.model import PidtsError
from pidts.model.advice import with_task
from pidts.model.errors import sentence
from pidts.relay.permissions import make_folder
from pidts.task.config.alerts import AlertReceiver
from pidts.task.operate.alert_conditions import AlertKey, Condition, conditions_of, is_known
from pidts.task.operate.progress import Progress
from pidts.task.run.alert_delivery import deliver
from pidts.task.run.cutover_under_way import CutOver

_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_SHOWN = 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AlertTimes:
    """The settings of the reports: times in seconds, and a number of tries."""

    bundle: float = 60.0
    """After a document, conditions are collected for this time."""
    calm: float = 30.0
    """A condition is over if no snapshot has shown it for this time. A shorter time would be wrong: when a new attempt
    begins, the snapshots do not show the condition for a moment.
    """
    first_pause: float = 1.0
    longest_pause: float = 120.0
    tries: int = 36
    """The number of attempts to deliver a document. All of them together take about an hour."""


_USUAL_TIMES = AlertTimes()


@dataclass(frozen=True, slots=True)
class _OpenAlert:
    condition: Condition
    announced: bool
    over: bool = False
    absent_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Delivery:
    document: Mapping[str, Any]
    keys: tuple[AlertKey, ...] = ()


class Alerts:
    """The alerts of one process; any thread may report conditions."""

    def __init__(
        self, folder: Path, task: str, task_file: Path | None = None, times: AlertTimes = _USUAL_TIMES
    ) -> None:
        """`folder` is the folder of the file with the open alerts. Nothing is reported before `begin`.

        `task_file` is the task file's path, for the commands in the advice.
        """
        self._path, self._task, self._task_file = folder / f"alerts-{task}.json", task, task_file
        self._times = times
        self._receiver: AlertReceiver | None = None
        self._changed = threading.Condition()
        self._open: dict[AlertKey, _OpenAlert] = {}
        self._documents: list[Mapping[str, Any]] = []
        self._tries, self._not_before, self._bundle_at = 0, 0.0, 0.0
        self._closing = False
        self._thread: threading.Thread | None = None

    def begin(self, receiver: AlertReceiver | None) -> None:
        """Begins with the conditions that earlier processes have saved. Only one process at a time uses the file."""
        with self._changed:
            self._receiver = receiver
            if receiver is not None:
                self._load()

    def use(self, receiver: AlertReceiver | None) -> None:
        """Uses another receiver from now on, because the task file has changed."""
        with self._changed:
            if receiver != self._receiver:
                self._receiver, self._tries, self._not_before = receiver, 0, 0.0
                self._changed.notify()

    def look(self, progress: Progress) -> None:
        """Opens and ends conditions as this snapshot of the task shows them."""
        receiver = self._receiver  # Another thread may remove the receiver.
        if receiver is None:
            return
        found = {one.key: one for one in conditions_of(progress, receiver.lag)}
        now = time.monotonic()
        with self._changed:
            changed = False
            for key, condition in found.items():
                known = self._open.get(key)
                if known is None or known.over:
                    self._open[key] = _OpenAlert(condition, announced=condition.reported_separately)
                    changed = True
                elif known.absent_since is not None:
                    self._open[key] = replace(known, absent_since=None)
            for key, known in list(self._open.items()):
                if key not in found and not known.over and is_known(key, progress):
                    changed |= self._ends(key, known, now)
            if changed:
                self._save()
                self._wake()

    def fire(self, condition: Condition) -> None:
        """Reports a condition that no snapshot shows."""
        with self._changed:
            if self._receiver is not None:
                known = self._open.get(condition.key)
                announced = known is not None and known.announced and not known.over
                self._open[condition.key] = _OpenAlert(condition, announced=announced)
                self._bundle_at = 0.0
                self._save()
                self._wake()

    def resolve(self, key: AlertKey) -> None:
        """Reports that a condition is over, if its beginning was reported."""
        with self._changed:
            known = self._open.get(key)
            if self._receiver is not None and known is not None:
                self._over(key, known)
                self._save()
                self._wake()

    def send(self, document: Mapping[str, Any]) -> None:
        """Stores a separate document durably, and delivers it."""
        with self._changed:
            if self._receiver is not None:
                self._documents.append(self._advised(dict(document)))
                self._save()
                self._wake()

    def drain(self, seconds: float) -> None:
        """Waits until everything is delivered, for this number of seconds at most."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._bundle_at = 0.0
            self._changed.notify()
        while time.monotonic() < deadline:
            with self._changed:
                if self._receiver is None or self._next(float("inf")) is None:
                    return
            time.sleep(_LOOK_SECONDS)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Tries once more to deliver the waiting documents. The next run delivers the rest."""
        with self._changed:
            self._closing, self._bundle_at, self._not_before = True, 0.0, 0.0
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(seconds)
        with self._changed:
            if self._receiver is not None and (due := self._next(float("inf"))) is not None:
                _log.warning("an alert is left to the next run", alert=json.dumps(due.document, ensure_ascii=False))

    def _ends(self, key: AlertKey, known: _OpenAlert, now: float) -> bool:
        if known.absent_since is None and key.kind != "run-ended":
            self._open[key] = replace(known, absent_since=now)
        elif known.absent_since is None or now - known.absent_since >= self._times.calm:
            self._over(key, known)
            return True
        return False

    def _over(self, key: AlertKey, known: _OpenAlert) -> None:
        if known.announced:
            self._open[key] = replace(known, over=True)
        else:
            del self._open[key]

    def _wake(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = self._next(now)
                receiver = self._receiver
                if due is None or receiver is None:
                    if self._closing:
                        return
                    self._changed.wait(self._pause(now) if receiver is not None else None)
                    continue
            problem = deliver(receiver, due.document)
            with self._changed:
                if not problem:
                    self._done(due)
                elif self._fails(due, problem) and self._closing:
                    return

    def _pause(self, now: float) -> float | None:
        """Returns the seconds until there is something to do; None if nothing is planned."""
        if not self._documents and all(one.announced and not one.over for one in self._open.values()):
            return None
        return max(0.01, max(self._not_before, 0.0 if self._documents else self._bundle_at) - now)

    def _next(self, now: float) -> _Delivery | None:
        if now < self._not_before:
            return None
        if self._documents:
            return _Delivery(self._documents[0])
        if now < self._bundle_at:
            return None
        for state, is_due in (("firing", lambda one: not one.announced), ("resolved", lambda one: one.over)):
            chosen: Sequence[_OpenAlert] = [one for one in self._open.values() if is_due(one)]
            if chosen:
                return _Delivery(self._bundle(state, chosen), tuple(one.condition.key for one in chosen))
        return None

    def _bundle(self, state: str, chosen: Sequence[_OpenAlert]) -> dict[str, Any]:
        return {
            "event": "alerts",
            "state": state,
            "task": self._task,
            "count": len(chosen),
            "alerts": [self._advised(one.condition.to_json()) for one in chosen[:_SHOWN]],
        }

    def _advised(self, report: dict[str, Any]) -> dict[str, Any]:
        """Returns the report with the task file in the commands of its advice."""
        if self._task_file is None or "todo" not in report:
            return report
        return {**report, "todo": with_task(report["todo"], str(self._task_file))}

    def _fails(self, due: _Delivery, problem: str) -> bool:
        """Plans the next try. Returns False if the document is given up."""
        self._tries += 1
        if self._tries < self._times.tries:
            pause = min(self._times.first_pause * 2 ** (self._tries - 1), self._times.longest_pause)
            self._not_before = time.monotonic() + pause
            if self._tries == 1:
                _log.warning("an alert was not delivered, and is tried again", to=str(self._receiver), problem=problem)
            return True
        _log.error(
            "an alert was not delivered",
            to=str(self._receiver),
            problem=problem,
            alert=json.dumps(due.document, ensure_ascii=False),
        )
        self._done(due)
        return False

    def _done(self, due: _Delivery) -> None:
        self._tries, self._not_before = 0, 0.0
        if not due.keys:
            self._documents.pop(0)
        else:
            self._bundle_at = time.monotonic() + self._times.bundle
        for key in due.keys:
            known = self._open.get(key)
            if known is None:
                continue
            if due.document["state"] == "firing":
                self._open[key] = replace(known, announced=True)
            elif known.over:
                del self._open[key]
        self._save()

    def _load(self) -> None:
        try:
            found = json.loads(self._path.read_text("utf-8"))
            self._documents = list(found["documents"])
            for one in found["open"]:
                condition = Condition.of(one["condition"])
                self._open[condition.key] = _OpenAlert(condition, one["told"], one["over"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("the file of open alerts cannot be read", file=str(self._path), problem=str(error))
        if self._documents or self._open:
            self._wake()

    def _save(self) -> None:
        state = {
            "documents": self._documents,
            "open": [
                {"condition": one.condition.to_json(), "told": one.announced, "over": one.over}
                for one in self._open.values()
            ],
        }
        try:
            make_folder(self._path.parent)
            replace_file(self._path, json.dumps(state, ensure_ascii=False), durable=True)
        except OSError as error:
            _log.warning("open alerts cannot be kept for the next run", file=str(self._path), problem=str(error))


@contextmanager
def alerting(alerts: Alerts, receiver: AlertReceiver | None) -> Iterator[None]:
    """Delivers alerts as long as the run lasts, and reports the error that ends it."""
    alerts.begin(receiver)
    try:
        yield
    except CutOver:
        raise  # a user has decided on the cutover, so this is not a failure
    except Exception as error:
        alerts.fire(run_ended(error))
        raise
    finally:
        alerts.close()


def run_ended(error: Exception) -> Condition:
    """Returns the condition "the run has ended with an error", which is over when a later run carries changes."""
    known = isinstance(error, PidtsError)
    return Condition(
        key=AlertKey("run-ended"),
        what=f"the run has ended: {sentence(str(error)) if known else type(error).__name__}",
        todo=(error.todo if isinstance(error, PidtsError) else "") or "See the run's log, then start the task again",
        code=error.code if isinstance(error, PidtsError) else "",
        since=time.time(),
    )


def watched(alerts: Alerts, show: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Returns a function that passes each snapshot to the alerts and to `show`."""

    def take(progress: Progress) -> None:
        alerts.look(progress)
        show(progress)

    return take
