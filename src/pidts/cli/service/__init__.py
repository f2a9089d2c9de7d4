"""The commands that give orders to a running service, and the program that runs one of its tasks."""
