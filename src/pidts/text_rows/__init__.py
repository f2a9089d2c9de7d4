"""Rows of a query, from the text protocol of MySQL and MariaDB into Arrow arrays."""
