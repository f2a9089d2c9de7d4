"""Whether servers, tables and this machine are fit for a task; nothing is written."""
