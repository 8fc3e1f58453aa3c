"""Turn settings into objects: the registry of schemes, the worker of a process, opening and joining a crawl.

No other package creates frontiers, buses, sinks or fetchers from settings.
"""
