"""Applies changes to a target exactly once: rows and checkpoint commit together, even if a process crashes."""

from pidts.apply.apply_rules import ApplyRules
from pidts.apply.checkpoint import Outcome, settle
from pidts.apply.committer import Committer
from pidts.apply.ddl.change import AttemptSuperseded, ChangeEnd, MemberChange, OpenJournal, SchemaChange
from pidts.apply.ddl.runner import DdlRunner
from pidts.apply.load import LoadRequest, load_chunk, load_whole
from pidts.apply.merge.moved_rows import LaggingTables
from pidts.apply.port import Target, TargetSession
from pidts.apply.prepare import prepared
from pidts.apply.refused_row import RefusedRow
from pidts.apply.retry import Retry
from pidts.apply.rows.version_column import can_be_version
from pidts.apply.shared_session import SharedSession
