"""The operator's side of a task: its status, metrics, locks and blocked changes, and the orders about them."""
