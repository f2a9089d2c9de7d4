"""The core of the service: it supervises tasks, each a process of its own, and records on disk which are to run."""
