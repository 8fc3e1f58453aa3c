"""The crawl itself: lease requests, fetch pages, call handlers, settle outcomes, export items.

Depends on the contracts in each role's ``base.py``, never on a technology.
"""
