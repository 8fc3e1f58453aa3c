"""Where the sun stands: when it rises and sets, and the dawns and dusks around that. Pure.

The formulas are those of Jean Meeus, *Astronomical Algorithms*, in the short form for the sun; they are right to about
a minute up to the polar circles. Celery asks the package ephem for this, which has to be compiled on some machines.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import acos, asin, cos, degrees, radians, sin, tan
from typing import Final

from weft.errors import ConfigError

# How high the sun's centre stands, in degrees; at sunrise its upper edge is seen, and the air bends the light.
_HEIGHTS: Final = {
    "dawn_astronomical": -18.0, "dawn_nautical": -12.0, "dawn_civil": -6.0, "sunrise": -0.833, "solar_noon": None,
    "sunset": -0.833, "dusk_civil": -6.0, "dusk_nautical": -12.0, "dusk_astronomical": -18.0,
}  # fmt: skip
EVENTS: Final = tuple(_HEIGHTS)

_2000: Final = datetime(2000, 1, 1, 12, tzinfo=UTC)
_DAYS_AHEAD: Final = 400
_ROUNDS: Final = 4


def due_after(event: str, latitude: float, longitude: float, last: datetime) -> datetime:
    """The first such event after ``last``, in UTC. Days without it, near the poles, are passed over.

    :raises ConfigError: it does not happen there within a year.
    """
    noon = last.astimezone(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    for number in range(-2, _DAYS_AHEAD):
        found = _on(event, latitude, longitude, noon + timedelta(days=number))
        if found is not None and found > last:
            return found
    raise ConfigError(f"{event} does not happen at latitude {latitude:g}, longitude {longitude:g}")


def _on(event: str, latitude: float, longitude: float, noon: datetime) -> datetime | None:
    """The event around the local noon of a day. Found in rounds, as the sun moves on in the meantime."""
    height = _HEIGHTS[event]
    moment = noon
    for _ in range(_ROUNDS):
        declination, ahead = _sun(moment)
        minutes = -4 * longitude - ahead
        if height is not None:
            angle = _angle(height, latitude, declination)
            if angle is None:
                return None
            minutes += 4 * angle if event.startswith(("sunset", "dusk")) else -4 * angle
        moment = noon + timedelta(minutes=minutes)
    return moment.replace(microsecond=0)


def _angle(height: float, latitude: float, declination: float) -> float | None:
    """How far the earth turns, in degrees, between noon and when the sun is at this height; None if it never is."""
    north = radians(latitude)
    ratio = (sin(radians(height)) - sin(north) * sin(declination)) / (cos(north) * cos(declination))
    return degrees(acos(ratio)) if -1 <= ratio <= 1 else None


def _sun(moment: datetime) -> tuple[float, float]:
    """The sun's declination in radians, and by how many minutes sundials are ahead of clocks."""
    centuries = (moment - _2000) / timedelta(days=36525)
    mean_longitude = radians((280.46646 + centuries * (36000.76983 + 0.0003032 * centuries)) % 360)
    anomaly = radians(357.52911 + centuries * (35999.05029 - 0.0001537 * centuries))
    eccentricity = 0.016708634 - centuries * (0.000042037 + 0.0000001267 * centuries)
    centre = radians(
        sin(anomaly) * (1.914602 - centuries * (0.004817 + 0.000014 * centuries))
        + sin(2 * anomaly) * (0.019993 - 0.000101 * centuries)
        + sin(3 * anomaly) * 0.000289
    )
    node = radians(125.04 - 1934.136 * centuries)
    seen = mean_longitude + centre - radians(0.00569 + 0.00478 * sin(node))
    tilt = radians(23.4392911 - centuries * 0.0130042 + 0.00256 * cos(node))
    half = tan(tilt / 2) ** 2
    ahead = 4 * degrees(
        half * sin(2 * mean_longitude)
        - 2 * eccentricity * sin(anomaly)
        + 4 * eccentricity * half * sin(anomaly) * cos(2 * mean_longitude)
        - half**2 / 2 * sin(4 * mean_longitude)
        - 1.25 * eccentricity**2 * sin(2 * anomaly)
    )
    return asin(sin(tilt) * sin(seen)), ahead
