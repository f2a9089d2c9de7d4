"""Checks whether servers, tables and this machine are fit for a task; writes nothing."""
