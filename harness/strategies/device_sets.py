"""The strategy of device sets: which devices, and in which order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from harness.devices.device import Devices
from harness.errors import UsageError


def device_sets(devices: Devices, *, min_size: int = 1, max_size: int | None = None) -> SearchStrategy[Devices]:
    """Generate non-empty subsets of ``devices`` in any order, which shrink to the first device.

    Each keeps the spec, the reason and the host of ``devices``.

    Raises:
        UsageError: the sizes are not between 1 and the number of devices.
    """
    most = len(devices) if max_size is None else max_size
    if not 1 <= min_size <= most <= len(devices):
        given = f"min_size={min_size}, max_size={max_size} of {len(devices)} device(s)"
        raise UsageError(f"{given}; accepted: 1 <= min_size <= max_size <= the number of devices")

    def chosen(order: list[int]) -> Devices:
        picked = [devices[index] for index in order]
        return Devices(picked, spec=devices.spec, reason=devices.reason, host=devices.host)

    # The size is drawn first: a list of any length would hardly ever hold all devices.
    sizes = st.integers(min_size, most)
    index = st.sampled_from(range(len(devices)))
    return sizes.flatmap(lambda size: st.lists(index, min_size=size, max_size=size, unique=True)).map(chosen)
