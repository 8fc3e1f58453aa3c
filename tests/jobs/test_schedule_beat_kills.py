"""D5: two beats, and the one that leads is killed: no schedule fires twice, and none is left out.

``make nemesis`` does more of this: see :mod:`tests.harness.nemesis.beats`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.harness.nemesis.beats import Ran, check, run


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_the_leader_is_killed(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = run(tmp_path, request.getfixturevalue(f"{kind}_url"), rounds=1, seed=1)
    assert result.findings == ()
    assert result.fires >= 6  # three before the kill, and three after


def test_the_check_sees_what_is_wrong() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    ran = [Ran(start + timedelta(seconds=number), str(number), 0.0) for number in (0, 1, 1, 3)]
    assert check(ran) == (f"ran twice: {start + timedelta(seconds=1)}", f"did not run: {start + timedelta(seconds=2)}")
    assert check(ran[:2]) == ()
