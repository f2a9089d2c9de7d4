"""The operator's view of a task: its status, metrics, locks and blocked changes, and the ddl commands about them."""
