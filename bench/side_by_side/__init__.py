"""The same crawl by Uttu, by a bare loop and by other crawlers, side by side: ``python -m bench.side_by_side``.

See ``__main__.py`` for the rounds and ``contestants.py`` for who takes part; the crawls themselves are in ``jobs/``.
"""
