"""Arrow columns as PostgreSQL's binary values."""
