"""Shipped for people who build on Uttu: contracts as test classes, a fake clock, pages, whole crawls, a test site.

Some modules need pytest. Nothing outside of this package imports them, except ``uttu demo``.
"""
