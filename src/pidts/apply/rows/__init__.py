"""Prepares each change before it is written: completed images, version guard, filtered updates, keys."""
