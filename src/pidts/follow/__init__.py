"""Copies a relay to another machine: a server sends the relay, and a follower keeps a copy of it."""
