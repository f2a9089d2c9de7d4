"""Scans blocks of many ordinary transactions in compiled code."""
