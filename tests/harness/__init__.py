"""Servers to test against, and the nemesis. For this repository only: not in the wheel."""
