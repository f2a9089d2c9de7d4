"""Decides what the next batch is; pure functions over the relay's index and the task's state."""

from pidts.plan.batch import BatchPlan, LogSlice, plan_between
from pidts.plan.copying import ChunkRequest, CopyState, StagedChunk, key_values
from pidts.plan.planner import Limits, Work, WorkKind, next_state
from pidts.plan.state import BatchKind, PlanState

__all__ = [
    "BatchKind",
    "BatchPlan",
    "ChunkRequest",
    "CopyState",
    "Limits",
    "LogSlice",
    "PlanState",
    "StagedChunk",
    "Work",
    "WorkKind",
    "key_values",
    "next_state",
    "plan_between",
]
