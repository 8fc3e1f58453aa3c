"""The URLs of the benchmark: cheap to make, as long as real ones, spread evenly over hosts.

The peers' Python runs this too, so it imports nothing of Uttu.
"""

from __future__ import annotations

HOSTS = 2000


def host_of(number: int, hosts: int = HOSTS) -> str:
    return f"host{number % hosts}.example"


def article(number: int, host: str) -> str:
    return f"https://{host}/articles/{number}/a-title-of-some-length"


def url_of(number: int, hosts: int = HOSTS) -> str:
    return article(number, host_of(number, hosts))
