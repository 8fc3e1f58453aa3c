"""Fetch URLs: the ``Fetcher`` contract (``base``), the HTTP fetcher (``http``) and its parts.

``cache`` wraps a fetcher for development, ``resolver`` looks up host names and refuses private addresses.
"""
