"""The contract of :mod:`weft.bus.base`, as tests every backend runs. Skips are by declared capability only."""

from __future__ import annotations

from weft.testing.bus_delivering import BusDelivering
from weft.testing.bus_keeping import BusKeeping
from weft.testing.bus_looking import BusExtras, BusLooking, BusRefusing


class BusContract(BusDelivering, BusKeeping, BusLooking, BusRefusing, BusExtras):
    """All of it."""
