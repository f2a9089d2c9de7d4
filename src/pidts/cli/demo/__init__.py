"""The demo: a private source with a shop that writes to it, a task, and a private target."""
