"""A replicator's log has the same form, whatever log options the run has from which the replicator was forked."""

from __future__ import annotations

import re
import subprocess
import sys

PROGRAM = """
import structlog
from pidts.cli.log_options import choose, set_up_logs
from pidts.task.run.replicator_process import log_to_stderr

choose("error", "json", None)
set_up_logs()
log_to_stderr()
structlog.get_logger().info("following the source")
"""


def test_the_log_has_all_lines_as_text_with_a_date() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=True)
    assert re.match(r"\S*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*following the source", done.stderr), done.stderr
    assert done.stdout == ""
