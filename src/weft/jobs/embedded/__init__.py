"""The private server: with no broker configured, jobs run on a Redis or Valkey that Weft starts under ``.weft/jobs/``.

Read ``place.py`` first: where everything is, and which lock means what.
"""

from weft.jobs.embedded.use import Embedded

__all__ = ["Embedded"]
