"""The embedded server: without a configured broker, Uttu starts Redis or Valkey under ``.uttu/jobs/`` for the jobs.

Read ``paths.py`` first: it lists the files and the meaning of each lock.
"""

from uttu.jobs.embedded.server import Embedded

__all__ = ["Embedded"]
