"""What tests of described machines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.softgpu import described


@pytest.fixture
def no_machine_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-ins for the driver know no card after the test, and hide none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield
    if described._drivers is not None:
        described._drivers.write({})
