"""PiDTS carries every change of a MySQL or MariaDB server to another database, exactly once."""
