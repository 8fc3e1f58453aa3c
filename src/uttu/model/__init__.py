"""The values that the other modules pass around: requests, responses, leases, outcomes, crawl state.

All are frozen and comparable, and do no I/O.
"""

from uttu.model.crawl import Counts
from uttu.model.lease import Dead, Done, Lease, Outcome, Pace, Redirect, Retry
from uttu.model.request import Links, Request
from uttu.model.response import Headers, Response

__all__ = [
    "Counts",
    "Dead",
    "Done",
    "Headers",
    "Lease",
    "Links",
    "Outcome",
    "Pace",
    "Redirect",
    "Request",
    "Response",
    "Retry",
]
