"""Rows of a query from the server's text protocol into Arrow arrays."""
