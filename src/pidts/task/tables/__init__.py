"""The tables of a task, their target tables, and whether the target tables fit."""
