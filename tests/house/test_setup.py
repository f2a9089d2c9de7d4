"""The setup scripts say what they do, and for how long they have done it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def said(script: str) -> list[str]:
    """Runs lines of bash after the functions of setup/say.sh; returns what they print on stderr."""
    text = f"set -euo pipefail; . setup/say.sh; progress_seconds=0.2; {script}"
    done = subprocess.run(["bash", "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    return done.stderr.splitlines()


def test_a_long_step_shows_its_progress_until_it_is_done() -> None:
    first, *progress, last = said("working 'installing x'; sleep 4; done_working; say done; sleep 0.5")
    assert (first, last) == ("setup: installing x", "setup: done")
    assert len(progress) >= 2
    assert all(line.startswith("setup:   still working: ") for line in progress)


def test_the_progress_is_visible_although_the_errors_of_a_program_are_discarded() -> None:
    assert len(said("{ working 'installing x'; sleep 4; } 2>/dev/null; done_working")) >= 3


def test_the_progress_ends_with_the_script() -> None:
    assert said("working 'installing x'; exit 0") == ["setup: installing x"]


def test_a_quick_step_shows_no_progress() -> None:
    assert said("working 'installing x'; working 'installing y'; done_working") == [
        "setup: installing x",
        "setup: installing y",
    ]
