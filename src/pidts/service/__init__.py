"""The service's inside: it supervises tasks, each a process of its own, and keeps what is wanted of them on disk."""
