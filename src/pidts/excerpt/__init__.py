"""A part of a source's log as somebody asks for it: where the log is, from where to where, of which tables."""
