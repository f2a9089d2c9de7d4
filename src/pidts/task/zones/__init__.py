"""Commands on several zones: moving rows to another owner, hand-over, return, and resolving locks in all zones."""
