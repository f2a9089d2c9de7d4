"""The names that DM gives to kinds of statements, for its event filters."""
