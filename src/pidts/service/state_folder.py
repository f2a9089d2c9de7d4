"""The folder in which a service stores its tasks.

    service.json            where the running service listens
    service.lock            held by the running service
    tasks/NAME/task.yaml    the task file as it was posted; or file.json, which names a file elsewhere
    tasks/NAME/wanted.json  what an operator has asked for last: running, paused or stopped
    tasks/NAME/process.json the process that runs the task, or ran it last
    tasks/NAME/process.lock held by that process
    tasks/NAME/progress.json, history.json, ended.json, facts.json, task.log, output.txt, runs/
    left/NAME/              a removed task's other files, such as its relay if the task file does not place it elsewhere

Crash points:

- A new task is made in a folder whose name begins with a dot. When this folder is complete, it is renamed to the
  task's name. After a crash before that, the next start of the service removes the folder.
- The folder of a removed task is first renamed to a name with a dot. Then the files that are not the service's own are
  moved to `left`, and the folder is removed. After a crash, the next start of the service does the rest.
- A new task gets the files in `left/NAME` as soon as its folder has its name. After a crash, the next start of the
  service moves the remaining files.
- The wanted state is replaced atomically, and is durable before the operator's request is answered.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Literal, get_args

from pidts.durable_folder import sync_folder
from pidts.model import ConfigError, PidtsError, Where
from pidts.relay.permissions import make_folder, private_opener
from pidts.service.durable_file import read_json, write_json, write_text

Wish = Literal["running", "paused", "stopped"]
"""The state that an operator wants a task to have."""

_WISHES: Final[tuple[Wish, ...]] = get_args(Wish)
_HIDDEN: Final = "."
_LOOKS, _LOOK_SECONDS = 5, 0.05
_REMOVED: Final = ".gone-"
_OWN: Final = re.compile(
    r"(task\.yaml|output\.txt|process\.lock|runs|task\.log(\.\d+)?"
    r"|(file|wanted|process|progress|history|ended|facts)\.json)(\..*)?|\..*"
)
"""The names of the service's own files in the folder of a task, and of their incomplete drafts."""


@dataclass(frozen=True, slots=True)
class WantedState:
    """The wanted state of a task, and the time at which an operator asked for it."""

    wish: Wish
    since: float
    resync: tuple[str, ...] | None = None
    """The tables that the next start copies again. Empty: all tables. None: no table."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "wanted": self.wish,
            "since": self.since,
            **({} if self.resync is None else {"resync": list(self.resync)}),
        }

    @staticmethod
    def from_json(value: dict[str, Any] | None) -> WantedState:
        """Reads the JSON of `to_json`. A task without this JSON is stopped, since nobody has asked to run it."""
        found = value or {}
        resync = found.get("resync")
        return WantedState(
            wish=next((wish for wish in _WISHES if wish == found.get("wanted")), "stopped"),
            since=float(found.get("since") or 0.0),
            resync=tuple(map(str, resync)) if isinstance(resync, list) else None,
        )


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The folder of one task."""

    path: Path

    @property
    def name(self) -> str:
        """The task's name."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """The lock of the task's process."""
        return self.path / "process.lock"

    @property
    def log(self) -> Path:
        """The log of the task's processes, one JSON object per line."""
        return self.path / "task.log"

    @property
    def runs(self) -> Path:
        """The folder of comparisons, repairs and checks."""
        return self.path / "runs"

    @property
    def task_file(self) -> Path:
        """The task file: the posted file, or the file elsewhere that the task was created from."""
        elsewhere = read_json(self.path / "file.json")
        return Path(str(elsewhere["path"])) if elsewhere and "path" in elsewhere else self.path / "task.yaml"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the task file is outside this folder."""
        return (self.path / "file.json").exists()

    def wanted(self) -> WantedState:
        """Returns the wanted state."""
        return WantedState.from_json(read_json(self.path / "wanted.json"))

    def want(self, wanted: WantedState) -> None:
        """Records the wanted state. It is on the disk when this method returns."""
        write_json(self.path / "wanted.json", wanted.to_json(), durable=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """Returns one of the task's records; None if it does not exist or cannot be read."""
        return read_json(self.path / f"{name}.json")

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Replaces one of the task's records."""
        write_json(self.path / f"{name}.json", value, durable=False)

    def forget(self, name: str) -> None:
        """Removes one of the task's records."""
        (self.path / f"{name}.json").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The state folder of a service."""

    path: Path

    @property
    def tasks(self) -> Path:
        """The folder of the tasks."""
        return self.path / "tasks"

    @property
    def left(self) -> Path:
        """The folder with the files that removed tasks have left."""
        return self.path / "left"

    @property
    def service(self) -> Path:
        """The file with the address of the running service."""
        return self.path / "service.json"

    def prepare(self) -> None:
        """Creates the folder if it does not exist. Raises if it belongs to another user, or if others may enter it."""
        try:
            make_folder(self.path)
            mode = self.path.stat()
            is_private = mode.st_uid == os.geteuid() and not stat.S_IMODE(mode.st_mode) & 0o077
            if is_private:
                make_folder(self.tasks)
        except OSError as error:
            raise ConfigError(
                "state-folder",
                f"the state folder cannot be used: {error.strerror}",
                where=Where(file=str(self.path)),
                todo="Name another folder: run pidts serve --state DIR",
            ) from None
        if not is_private:
            raise ConfigError(
                "state-folder",
                "the state folder belongs to another user, or other users may enter it",
                where=Where(file=str(self.path)),
                todo="The folder contains task files and logs. "
                f"Run chmod 700 {self.path}, or name another folder with --state",
            )

    def _clean_up(self) -> None:
        for hidden in self.tasks.glob(f"{_HIDDEN}*"):
            if hidden.name.startswith(_REMOVED):
                self._finish_removal(hidden)
            else:
                shutil.rmtree(hidden, ignore_errors=True)
        for task in self.all():
            self._give_back(task)

    @contextmanager
    def sole_service(self) -> Iterator[None]:
        """Locks the folder for this service; raises if another service has the lock."""
        with open(self.path / "service.lock", "a+", encoding="ascii", opener=private_opener) as file:
            if not _locked(file):
                found = read_json(self.service) or {}
                raise PidtsError(
                    "already-serving",
                    f"process {found.get('process', '?')} serves this state folder at {found.get('url', '?')}",
                    where=Where(file=str(self.path)),
                    todo="Use that service (run: pidts list), or name another folder with --state",
                )
            self._clean_up()
            try:
                yield
            finally:
                self.service.unlink(missing_ok=True)

    def all(self) -> list[TaskFolder]:
        """Returns the tasks, sorted by name."""
        return [
            TaskFolder(path)
            for path in sorted(self.tasks.iterdir())
            if path.is_dir() and not path.name.startswith(_HIDDEN)
        ]

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Yields a folder for a new task. It is removed afterwards, unless `create` has turned it into a task."""
        path = self.tasks / f"{_HIDDEN}new-{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def create(self, draft: Path, name: str, wish: Wish) -> TaskFolder:
        """Turns a draft that has a task file into a task. Raises FileExistsError if a task has this name."""
        write_json(draft / "wanted.json", WantedState(wish, time.time()).to_json(), durable=True)
        target = self.tasks / name
        if target.exists():  # renaming would replace an empty folder
            raise FileExistsError(name)
        draft.rename(target)
        sync_folder(self.tasks)
        self._give_back(TaskFolder(target))
        return TaskFolder(target)

    def remove(self, task: TaskFolder) -> None:
        """Removes a task that does not run. Files that are not the service's own, such as the relay, go to `left`."""
        gone = self.tasks / f"{_REMOVED}{secrets.token_hex(8)}-{task.name}"
        task.path.rename(gone)
        sync_folder(self.tasks)
        self._finish_removal(gone)

    def _finish_removal(self, gone: Path) -> None:
        name = gone.name.removeprefix(_REMOVED).partition("-")[2]
        kept = [path for path in gone.iterdir() if not _OWN.fullmatch(path.name)]
        if kept and name:
            # If files of an earlier task are still in `left`, this task had files of the same names (`_give_back`).
            if (self.left / name).exists():
                (self.left / name).rename(self.left / f"{_HIDDEN}older-{secrets.token_hex(8)}-{name}")
            _move(kept, self.left / name)
        with suppress(OSError):
            shutil.rmtree(gone)

    def _give_back(self, task: TaskFolder) -> None:
        """Moves files from `left` into the folder of a new task: an earlier task of the same name has left them."""
        left = self.left / task.name
        if left.is_dir():
            _move(list(left.iterdir()), task.path)
            with suppress(OSError):
                left.rmdir()  # the folder is not empty if the task has a file of the same name


def _locked(file: IO[str]) -> bool:
    """Locks a file; False if it stays locked. Tries again: commands that look for a service lock it briefly."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOOK_SECONDS)
        else:
            return True
    return False


def _move(paths: Sequence[Path], folder: Path) -> None:
    """Moves files and folders into `folder`. A file stays where it is if `folder` already has a file of its name."""
    make_folder(folder)
    for path in paths:
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    sync_folder(folder)
    sync_folder(folder.parent)


def usual_state_folder() -> Path:
    """Returns the state folder that a service uses by default."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "pidts"


def posted_file(draft: Path, text: str) -> Path:
    """Writes the text of a task file into a draft; returns the file's path."""
    path = draft / "task.yaml"
    write_text(path, text)
    return path


def named_file(draft: Path, path: Path) -> None:
    """Records the path of a task file that is elsewhere."""
    write_json(draft / "file.json", {"path": str(path)}, durable=True)
