"""Gives tables of MySQL and MariaDB, at a cutover, the columns, keys and partitions that they have on the source."""
