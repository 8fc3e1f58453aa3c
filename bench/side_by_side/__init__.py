"""The same crawl by Uttu, a bare loop and other crawlers, side by side: ``python -m bench.side_by_side``.

``scenarios.py`` lists what is crawled and by whom, ``rounds.py`` runs it, and ``jobs/`` has the crawls themselves.
"""
