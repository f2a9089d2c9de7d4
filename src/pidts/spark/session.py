"""The Spark session, tuned for many small batches."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeAlias

import structlog
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pidts.binlog.machine_code import compiled
from pidts.hidden_modules import show_pandas
from pidts.model import PidtsError, Transient
from pidts.owned_folder import process_folder
from pidts.spark.class_data import java_options
from pidts.spark.master import is_local, local_master, makes_own_secret
from pidts.spark.versions import FILE_MANAGER, accumulator_servers
from pidts.spark.worker_start import launcher

Session: TypeAlias = SparkSession

_log = structlog.get_logger(__name__)

_MEASURED = {
    # Spark's own file manager starts `chmod` and `readlink` processes for each of its files: with it, a batch takes 66
    # ms instead of 21.
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.adaptive.enabled": "false",
    # A pointer or a blob is one row, and may be large. More rows in one Arrow batch would only cost memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
_SECRET = re.compile(r"passw|secret|token|credential|private|(access|account|api)[.-]?key", re.IGNORECASE)
"""Matches the names of settings that may be secrets, such as `spark.authenticate.secret`."""
_JAVA = 17
_starting = threading.Lock()
"""Held while a JVM starts: the options are in the environment, which all threads share."""
_jvms: list[Any] = []
"""The processes of the JVMs that this process has started, without those that had ended before the last start."""
_START_SECONDS = 30.0
"""When this process ends, it waits at most this many seconds for a JVM that is starting."""
_END_SECONDS = 5.0
"""The seconds that the JVM may take to end with this process."""
_STOP_SECONDS = 10.0
"""The seconds that the JVM may take to stop a session."""
JAVA_OPTIONS = "-Djdk.lang.Process.launchMechanism=VFORK -XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Xss8m"


def build_session(task: str, master: str, scratch: Path, log: Path, settings: Mapping[str, str]) -> Session:
    """Starts a session for one task. Spark writes its files to `scratch`, and its messages to `log`."""
    show_pandas()
    if compiled():
        threading.Thread(target=_load_decoder, name="load-decoder", daemon=True).start()
    # Executors of a cluster run on other machines, which may have the same interpreter, but not the launcher.
    os.environ["PYSPARK_PYTHON"] = str(launcher(scratch, own=True)) if is_local(master) else sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Without this setting, the C library keeps more memory of freed large arrays, and Python workers grow by a third.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(4 << 20))
    fixed = {
        **_MEASURED,
        "spark.app.name": f"pidts {task}",
        "spark.master": local_master(master),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if makes_own_secret(master):
        # Without this setting, each user of this machine could connect to the JVM's ports, and send it objects to
        # deserialize.
        fixed["spark.authenticate"] = "true"
    conf = SparkConf(loadDefaults=False).setAll(list({**fixed, **settings}.items()))
    # If a JVM is killed while it sends to an accumulator server, the base class of that server would print a traceback.
    for server in accumulator_servers():
        server.handle_error = _accumulators_lost  # type: ignore[attr-defined]
    try:
        if SparkContext._gateway is None:  # noqa: SLF001 - Spark offers no public way
            _start_jvm(_without_secrets(conf), log)
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (OSError, Py4JError, PySparkRuntimeError) as error:
        forget_session()
        raise not_started(error) from error


def not_started(error: Exception) -> PidtsError:
    """Returns the error for a JVM that has not started. Without Java, the error is permanent: a retry is useless."""
    if not isinstance(error, PySparkRuntimeError):
        return Transient("spark-died", "Spark's JVM disappeared while it was starting")
    if _java_runs():
        return Transient("spark-died", "Spark's JVM ended while it was starting")
    return _no_java(str(error))


def demand_java() -> None:
    """Raises if no Java is installed that can run Spark's classes."""
    if not _java_runs():
        raise _no_java("no Java is installed, or its version is too old")


def _no_java(why: str) -> PidtsError:
    todo = "Install a Java runtime of version 17 or newer (apt-get install default-jre-headless), or set JAVA_HOME"
    return PidtsError("spark-not-started", f"Spark does not start: {why}", todo=todo)


def _accumulators_lost(_server: object, _request: object, _client: object) -> None:
    _log.debug("the connection for Spark's accumulators is lost", exc_info=True)


def _without_secrets(conf: SparkConf) -> SparkConf:
    """Returns the settings that the JVM gets as its arguments, which each user of the machine can read.

    The session gets all settings from this process.
    """
    shown = [(name, value) for name, value in conf.getAll() if not _SECRET.search(name)]
    return SparkConf(loadDefaults=False).setAll(shown)


def _start_jvm(conf: SparkConf, log: Path) -> None:
    """Starts the JVM. Its messages are written to the file, not to the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        gateway = start_gateway(conf, file)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - Spark offers no public way


def start_gateway(conf: SparkConf, errors: IO[bytes] | int, descriptors: Sequence[int] = ()) -> Any:
    """Starts a JVM with PiDTS's options, unless the user has set options. Returns pyspark's connection to the JVM.

    The JVM writes its messages to `errors`, and inherits `descriptors`.

    The JVM's temporary folder contains files of its libraries and of Spark. The folder must not belong to one run,
    since later sessions of this process use the same JVM. When the JVM has started, it writes its port into the folder,
    and then waits for the end of this process. If it cannot write the port, it never ends. So the folder must exist as
    long as a JVM is starting: `_end_jvms` waits for the JVM, and if this process is killed, the JVM still has the
    folder's lock.
    """
    with _starting, _options() as lock:
        gateway = launch_gateway(conf, {"stderr": errors, "pass_fds": [*descriptors, *lock]})  # type: ignore[no-untyped-call]
        _jvms[:] = [*(one for one in _jvms if one.poll() is None), gateway.proc]
        return gateway


@contextmanager
def _options() -> Iterator[Sequence[int]]:
    """Sets PiDTS's options for a JVM that starts in the block. Returns the lock of the JVM's folder, if it has one."""
    name = "PYSPARK_SUBMIT_ARGS"
    if name in os.environ:
        yield ()
        return
    owned = process_folder()
    folder = owned.path / "java"
    if not folder.exists():
        folder.mkdir()
        atexit.register(_end_jvms, os.getpid())
    usual, tempfile.tempdir = tempfile.tempdir, str(folder)  # a folder of pyspark's own would remain after kill -9
    escaped = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    words = f'{JAVA_OPTIONS} {java_options()} "-Djava.io.tmpdir={escaped}"'
    os.environ[name] = f"--driver-java-options {shlex.quote(words)} pyspark-shell"
    try:
        yield (owned.lock,)
    finally:
        del os.environ[name]
        tempfile.tempdir = usual


def _end_jvms(owner: int) -> None:
    """Ends the JVMs of this process before their folder is removed, in which they might write again."""
    if os.getpid() != owner:
        return
    _starting.acquire(timeout=_START_SECONDS)  # another thread may be starting a JVM
    for process in _jvms:
        end_jvm(process, _END_SECONDS)


def end_jvm(process: Any, seconds: float) -> None:
    """Ends the process of a JVM. If it has not ended after `seconds`, it is killed."""
    with suppress(OSError):
        process.stdin.close()  # this makes the JVM end
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _load_decoder() -> None:
    """Loads the decoder while the JVM starts. Otherwise the first batch would wait a second for the decoder."""
    from pidts.replicate.warm import warm

    with suppress(Exception):  # the code that decodes will get the error again, and report it
        warm()


def _java_runs() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path("java")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return False
    version = re.search(r'version "(\d+)', said)
    return version is not None and int(version.group(1)) >= _JAVA


@contextmanager
def answering_early(session: Session) -> Iterator[None]:
    """Makes data sources that are registered in the block run in Python processes that answer Spark at once.

    The processes answer before they load their modules. For everything else, a session that PiDTS has not started keeps
    its own interpreter.

    Spark's default interpreter is the first `python3` in the PATH. If no virtual environment is activated, that
    interpreter does not find this package. So another interpreter is set. If `PYSPARK_PYTHON` names an interpreter,
    this choice is kept.
    """
    context = session.sparkContext
    usual = context.pythonExec
    is_own = usual == sys.executable or not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & os.environ.keys()
    if is_own and is_local(context.master or ""):
        folder = Path(tempfile.mkdtemp(prefix="python-", dir=process_folder().path))
        context.pythonExec = str(launcher(folder))
    try:
        yield
    finally:
        context.pythonExec = usual


def is_alive(session: Session) -> bool:
    """Whether the JVM still answers."""
    try:
        session.sparkContext.defaultParallelism  # noqa: B018 - a JVM that has ended raises here
    except Exception:  # noqa: BLE001 - py4j raises many kinds of errors if the JVM has ended
        return False
    return True


def end_session(session: Session) -> None:
    """Ends the session and its JVM. The next session starts another JVM."""
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark offers no public way
    stop_session(session)
    if gateway is not None:
        with suppress(Exception):
            gateway.proc.stdin.close()  # this makes the JVM end
            gateway.proc.wait(_END_SECONDS)
        with suppress(Exception):
            gateway.shutdown()
    forget_session()


def stop_session(session: Session) -> None:
    """Stops the session. A JVM that does not answer is killed, since calls into it have no time limit."""

    def stop() -> None:
        with suppress(Exception):  # a JVM that was killed raises an error
            session.stop()

    stopping = threading.Thread(target=stop, name="stop-session", daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    if stopping.is_alive():
        forget_session()


def forget_session() -> None:
    """Kills the JVM and removes all references to it, so that the next session starts a new JVM."""
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark offers no public way
    if gateway is not None:
        with suppress(Exception):  # an error here must not keep the references below
            gateway.proc.kill()
            gateway.proc.wait()
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
