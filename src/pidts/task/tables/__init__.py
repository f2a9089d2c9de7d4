"""The tables of a task, their target tables, and whether these fit."""
