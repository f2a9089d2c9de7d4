"""`pidts locks`: rows that differ from the source and were set aside."""
