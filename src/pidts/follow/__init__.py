"""Relay → relay on another machine: a server that hands out a relay, and a follower that keeps a copy of it."""
