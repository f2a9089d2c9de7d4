"""Renders a structure or a change as the text of a statement."""
