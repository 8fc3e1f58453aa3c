"""The embedded store: one SQLite file per crawl.

Any number of processes on one machine can share it. :mod:`~uttu.frontier.sqlite.layout` draws the tables.
"""

from uttu.frontier.sqlite.database import Database
from uttu.frontier.sqlite.frontier import SqliteFrontier

__all__ = ["Database", "SqliteFrontier"]
