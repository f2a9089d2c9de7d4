"""`pidts events`: change events of a server's log or of log files, as lines."""
