"""Failures in the shipped contracts show their values."""

import pytest

pytest.register_assert_rewrite("weft.testing")
