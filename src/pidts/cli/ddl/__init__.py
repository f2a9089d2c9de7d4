"""`pidts ddl`: schema changes that wait for an operator or for other shards."""
