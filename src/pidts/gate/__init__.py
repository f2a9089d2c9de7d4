"""Writes the changes of a source to a datacenter as JSON records, in the format of Inception Gate."""
