"""Decides what the next batch contains; pure functions over the relay's index and the task's state."""

from pidts.plan.batch import BatchPlan, LogSlice, plan_between
from pidts.plan.copy.state import ChunkRequest, CopyMode, CopyState, Phase, StagedChunk, key_values
from pidts.plan.limits import Limits
from pidts.plan.planner import next_state
from pidts.plan.relevance import NOTES, Relevance, RelevanceKind
from pidts.plan.state import (
    HeldTables,
    Places,
    PlanState,
    copied_at,
    copies_of,
    dealing_of,
    furthest,
    inside_batch,
    run_of,
    slowest,
)
from pidts.plan.unapplied import UnappliedSearch, WaitingTableSearch
