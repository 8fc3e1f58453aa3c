"""Weft: a distributed web crawler. One spider file, from a laptop to a fleet."""
