"""The core of the service: it supervises tasks, each in a process of its own, and records which of them should run."""
