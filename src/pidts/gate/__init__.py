"""Inception Gate: the changes of a source as JSON records of a datacenter, for programs that read these records."""
