"""Inception Gate: writes the changes of a source to a datacenter as JSON records, for programs that read them."""
