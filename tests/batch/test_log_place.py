"""A run refuses a relay that has another log than the one whose changes the target has."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest

from pidts.batch.log_place import demand_same_log, end_of_batch, place_to_prove
from pidts.model import Checkpoint, Halted, LogFile, LogPlace, Lsn, Position, TableName
from pidts.plan import HeldTables, PlanState
from pidts.relay import Origin
from pidts.replicate import AppliedPlace

KNOWN = LogFile("bin.000007", 100, 1, "mysql a")
ANEW = replace(KNOWN, created=200)
AT, EARLIER, END = Lsn(0, 7, 500), Lsn(0, 6, 300), Lsn(0, 8, 400)


@dataclass
class Relay:
    """A relay that has these files at these places."""

    files: Mapping[Lsn, LogFile]
    gtids: str | None = None
    begins_elsewhere: Lsn | None = None
    """The place after which the relay continues with another server's log."""
    origin: Origin | None = None
    received: Lsn | None = None

    def position(self, lsn: Lsn) -> Position:
        return lsn.position("bin")

    def log_file(self, lsn: Lsn) -> LogFile | None:
        return self.files.get(lsn)

    def gtid_set(self, at: Lsn) -> str | None:
        return self.gtids

    def demand_place(self, lsn: Lsn) -> None:
        if self.begins_elsewhere is not None and lsn > self.begins_elsewhere:
            raise Halted("other-source", "the relay has continued with another server")


def checkpoint(lsn: Lsn = AT, copy: str = "", log_file: LogFile | None = KNOWN) -> Checkpoint:
    return Checkpoint(task="t", source="s", worker=0, lsn=lsn, position="bin.000007:500", copy=copy, log_file=log_file)


@pytest.mark.parametrize(
    ("known", "there", "refused"),
    [
        (KNOWN, ANEW, True),
        (KNOWN, replace(KNOWN, server_id=2), True),
        (KNOWN, KNOWN, False),
        (KNOWN, replace(ANEW, name="bin.000008"), False),  # the relay begins at a later file
        (KNOWN, None, False),  # purged, or not received yet
        (None, ANEW, False),  # an earlier version has stored the checkpoint
    ],
)
def test_only_a_file_of_the_same_server_and_name_that_was_made_anew_is_refused(
    known: LogFile | None, there: LogFile | None, refused: bool
) -> None:
    relay = Relay({AT: there} if there is not None else {})
    for call in (
        lambda: demand_same_log(relay, [checkpoint(log_file=known)]),
        lambda: end_of_batch(relay, [checkpoint(log_file=known)], AT, END),
    ):
        with pytest.raises(Halted, match="created") if refused else nullcontext() as caught:
            call()
        assert not refused or caught.value.code == "source-went-back"


def test_a_checkpoint_is_compared_at_the_place_with_which_it_was_stored() -> None:
    """The worker is within a transaction after this place. Or tables wait at an earlier place."""
    stored = PlanState(AT)
    ahead = checkpoint(Lsn(0, 7, 900, 5), PlanState(Lsn(0, 7, 900, 5)).copy_json(copied_at=stored))
    waiting = checkpoint(copy=PlanState(AT, held=(HeldTables(frozenset({TableName("d", "t")}), EARLIER),)).copy_json())
    for one in (ahead, waiting):
        with pytest.raises(Halted, match=r"the relay has bin\.000007"):
            demand_same_log(Relay({AT: ANEW}), [checkpoint(log_file=None), one])
        demand_same_log(Relay({EARLIER: ANEW, Lsn(0, 7, 900, 5): ANEW}), [one])


def test_the_place_of_a_batch_has_the_file_in_which_the_batch_ends() -> None:
    after = replace(KNOWN, name="bin.000008")
    relay = Relay({AT: KNOWN, END: after})
    assert end_of_batch(relay, [checkpoint()], AT, END) == LogPlace("bin.000008:400", after)
    assert end_of_batch(relay, [checkpoint()], AT, AT) == LogPlace("bin.000007:500"), "this batch has no log"


MARIADB = LogFile("bin.000007", 100, 1, "mariadb server-id 1 at a")


@pytest.mark.parametrize(
    ("known", "there", "ours", "found", "refused"),
    [
        (KNOWN, replace(ANEW, server="mysql b"), "a:1-9", "a:1-9", False),
        (KNOWN, replace(ANEW, server="mysql b"), "a:1-9", "a:1-8", True),
        (KNOWN, replace(ANEW, server="mysql b"), "a:1-9", "a:1-9,b:1", True),
        (KNOWN, replace(ANEW, server="mysql b", name="bin.000008"), "a:1-9", "a:1-8", True),
        (KNOWN, replace(ANEW, server="mysql b"), "a:1-9", None, True),
        (KNOWN, replace(ANEW, server="mysql b"), "", "a:1-9", True),
        # The other server has a copy of the log file, and its set may have more from before the task began.
        (KNOWN, replace(KNOWN, server="mysql b"), "a:3-9", "a:1-9", False),
        (KNOWN, replace(KNOWN, server="mysql b"), "", None, False),
        (KNOWN, replace(KNOWN, server="mysql b"), "a:3-9", "a:1-10", True),
        # This may be the same MariaDB in a new container.
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b"), "0-1-9", "0-1-9,1-1-3", False),
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b"), "", "0-1-9", False),
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b"), "0-1-9", "0-1-8", True),
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b", name="bin.000008"), "0-1-9", "0-1-10", True),
        # The checkpoint has no log file.
        (None, KNOWN, "a:1-9", "a:5-9", False),  # a:1-4 came from a backup, and is in no log file
        (None, KNOWN, "a:1-9,b:1-3", "a:1-9", False),
        (None, KNOWN, "a:1-9", "a:5-8", True),
        (None, KNOWN, "a:1-9", "b:1-9", True),
        (None, KNOWN, "0-1-9", "0-1-8", True),
        (None, KNOWN, "0-1-9", "0-1-9,1-1-1", False),
        (None, KNOWN, "0-1-9", None, False),
        (None, KNOWN, "", "0-1-9", False),
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b", created=200), "0-1-9", "0-1-9,1-1-3", True),
        (MARIADB, replace(MARIADB, server="mariadb server-id 1 at b", created=200), "0-1-9", "0-1-9", False),
    ],
)
def test_the_log_of_another_server_is_right_only_with_the_same_transactions_before_the_place(
    known: LogFile | None, there: LogFile, ours: str, found: str | None, refused: bool
) -> None:
    uuid = "-0000-0000-0000-000000000000"
    ours, theirs = (
        text and text.replace("a:", f"0000000a{uuid}:").replace("b:", f"0000000b{uuid}:") for text in (ours, found)
    )
    one, relay = replace(checkpoint(log_file=known), gtid=ours), Relay({AT: there}, theirs)
    for call in (lambda: demand_same_log(relay, [one]), lambda: end_of_batch(relay, [one], AT, END)):
        with pytest.raises(Halted, match="different transactions before it") if refused else nullcontext() as caught:
            call()
        assert not refused or caught.value.code == "other-source"


def test_the_text_about_the_copy_is_not_parsed_if_the_log_files_are_equal() -> None:
    """Each batch compares, and the copy of many tables has a long text."""
    one = replace(checkpoint(), copy="no JSON")
    end_of_batch(Relay({AT: KNOWN}), [one], AT, END)
    with pytest.raises(ValueError, match="Expecting value"):
        end_of_batch(Relay({AT: ANEW}), [one], AT, END)


def test_a_worker_that_is_ahead_of_a_new_servers_log_is_refused() -> None:
    """The relay begins at the place of the worker that is behind. The other one would apply the changes again."""
    ahead = checkpoint(Lsn(0, 7, 900, 5), PlanState(Lsn(0, 7, 900, 5)).copy_json(copied_at=PlanState(AT)))
    demand_same_log(Relay({}, begins_elsewhere=AT), [checkpoint()])
    with pytest.raises(Halted, match="another server"):
        demand_same_log(Relay({}, begins_elsewhere=AT), [checkpoint(), ahead])


OWN = Origin(KNOWN.server, "bin", 0)


@pytest.mark.parametrize(
    ("origin", "received", "log_file", "is_proven"),
    [
        (OWN, EARLIER, KNOWN, True),
        (OWN, AT, KNOWN, False),  # the relay has the place: its log file is compared
        (None, None, KNOWN, True),  # empty: a relay server may never send this place
        (OWN, EARLIER, None, False),  # an earlier version has stored the checkpoint
        (replace(OWN, server="mysql b"), EARLIER, KNOWN, False),  # places of one server mean nothing on another
        (replace(OWN, change_no=1), EARLIER, KNOWN, False),  # the server was the source twice
    ],
)
def test_the_source_is_asked_only_if_a_relay_of_the_same_log_lacks_a_checkpoints_place(
    origin: Origin | None, received: Lsn | None, log_file: LogFile | None, is_proven: bool
) -> None:
    stored = [checkpoint(EARLIER, log_file=replace(KNOWN, name="bin.000006")), checkpoint(log_file=log_file)]
    found = place_to_prove(Relay({}, origin=origin, received=received), stored)
    assert found == (AppliedPlace(AT, "bin.000007:500", "", KNOWN) if is_proven else None)
