"""The values that travel through Weft: frozen, comparable, without I/O."""

from weft.model.counts import Counts
from weft.model.lease import Dead, Done, Lease, Outcome, Pace, Retry
from weft.model.links import Links
from weft.model.request import Request
from weft.model.response import Headers, Response

__all__ = ["Counts", "Dead", "Done", "Headers", "Lease", "Links", "Outcome", "Pace", "Request", "Response", "Retry"]
