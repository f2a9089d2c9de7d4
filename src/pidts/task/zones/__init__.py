"""Commands on several zones: moving rows to another owner, handing over, returning, resolving locks in all zones."""
