"""Gives tables of MySQL and MariaDB what the source has, at a cutover: columns, keys, constraints, counters."""
