"""Follows changes made by gh-ost and pt-online-schema-change: the names of their tables, and the change by a swap."""
