"""Follows schema changes by gh-ost and pt-online-schema-change: finds the tools' tables, and translates the swap."""
