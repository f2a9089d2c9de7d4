"""The switch from a task's sources to its target, and the way back."""
