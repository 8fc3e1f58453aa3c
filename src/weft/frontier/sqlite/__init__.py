"""The embedded store: one SQLite file per crawl, shared safely by the processes of one machine."""

from weft.frontier.sqlite.database import Database
from weft.frontier.sqlite.frontier import SqliteFrontier

__all__ = ["Database", "SqliteFrontier"]
