"""Writes many rows to MariaDB as row events of its log: `cells` → `statements` → `copies` → `writer`."""
