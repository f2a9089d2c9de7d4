"""The commands for a running service, and the program that runs one of its tasks."""
