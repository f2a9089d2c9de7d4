"""Converts row images to Arrow in machine code, table by table; `binlog.rows` does the same in plain code.

Each column is described by a row of numbers (`program`). One loop with a switch over their codes reads all images
(`images`) into memory that Arrow uses without a copy (`buffers`, `arrays`). Every length is compared with the remaining
bytes before it is used. If the bytes are wrong, plain code makes the error.
"""
