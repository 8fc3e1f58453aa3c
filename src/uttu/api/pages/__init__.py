"""The pages of the dashboard, rendered by the server.

``Pages(data).routes()`` are all routes; ``PAGES`` and ``FORMS`` are the tables behind them.
"""
