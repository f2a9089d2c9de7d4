"""Tasks: the task file, the prechecks before a task writes anything, its progress, and the run itself."""
