"""Decisions: what to fetch, when, how hard to push, what to do after a failure.
Functions of their arguments; no I/O, no clock, no await."""
