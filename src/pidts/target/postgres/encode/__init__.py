"""Converts Arrow columns to PostgreSQL's binary values."""
