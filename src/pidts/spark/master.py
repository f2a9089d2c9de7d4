"""Spark's master: the setting that says on which machines Spark's processes run."""

from __future__ import annotations


def local_master(master: str) -> str:
    """Returns `local[N,4]` for `local[N]`: with four attempts at each task, a killed process does not end the query."""
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},4]"
    return "local[1,4]" if master == "local" else master


def is_local(master: str) -> bool:
    """Whether all processes of Spark run on this machine, as children of this process."""
    return master.startswith("local")


def makes_own_secret(master: str) -> bool:
    """Whether Spark itself makes the secret that authenticates its connections. A cluster has a secret of its own."""
    return is_local(master) and not master.startswith("local-cluster")
