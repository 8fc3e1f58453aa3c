"""The shared store: crawls on a Redis or Valkey server, for workers on any number of machines.

:mod:`~uttu.frontier.redis.crawl` lists the keys; the operations on them are the Lua library in ``lua/``.
"""
