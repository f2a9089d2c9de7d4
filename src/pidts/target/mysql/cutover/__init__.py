"""Columns, keys and partitions that a cutover makes on MySQL and MariaDB what they are on the source."""
