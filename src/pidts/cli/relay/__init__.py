"""`pidts relay`: shows the content of a relay, and removes log that no task needs."""
