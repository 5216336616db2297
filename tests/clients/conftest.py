"""Clients that people use, through hundreds of faults: that takes a while, so only on demand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SEAM_CLIENTS") == "1":
        return
    skip = pytest.mark.skip(reason="takes more than a minute: make test-clients")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
