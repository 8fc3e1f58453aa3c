"""Decisions: what to fetch, when, how many at once, and what to do after a failure.

Pure functions of their arguments and a clock, without I/O.
"""
