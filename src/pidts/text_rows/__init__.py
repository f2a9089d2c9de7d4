"""Converts rows of a query from the text protocol of MySQL and MariaDB to Arrow arrays."""
