"""Row images to Arrow in machine code, table by table; `binlog.rows` says in plain words what it does.

A column becomes a row of numbers (`program`), one loop with a switch over their codes reads all images (`images`) into
memory that Arrow takes over as it is (`buffers`, `arrays`). Every length is compared with what is left before it is
believed. Where something is wrong with the bytes, plain code is asked to say what.
"""
