"""Follows schema changes made by gh-ost and pt-online-schema-change: the names of these tools' tables, and the swap."""
