"""What the tests of several brokers need."""

from __future__ import annotations

import pytest
from tests.fetch.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Has signed a certificate for 127.0.0.1."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    authority.server()
    return authority
