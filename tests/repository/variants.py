"""A pytest plug-in that has tox try one case of a test that verifies many programs; its other cases are variants.

This holds for parametrised tests in ``FOLDERS`` that use the fixture or the marker ``devices``: each case traces
programs of its own, which takes seconds. ``@pytest.mark.cases(4)`` has four cases tried, spread evenly over the list.
The environments ``long``, ``kernels`` and ``softgpu`` of tox run the variants.
"""

from __future__ import annotations

import zlib
from collections import defaultdict

import pytest

FOLDERS = ("distribute", "evidence", "judgement", "parallel")


def tried(test: str, cases: int, wanted: int) -> set[int]:
    """Which of so many cases of a test are tried: ``wanted`` of them, spread evenly.

    The first depends on the test's name, so that of two tests with the modes "eager" and "graph" not both are tried in
    the first mode alone.
    """
    wanted = min(wanted, cases)
    first = zlib.crc32(test.encode())
    return {(first + number * cases // wanted) % cases for number in range(wanted)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Before pytest deselects by marker.
    tests: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        chosen_by_hand = any(item.get_closest_marker(name) for name in ("long", "variant"))
        on_devices = "devices" in item.fixturenames or item.get_closest_marker("devices") is not None
        if item.path.parent.name in FOLDERS and on_devices and not chosen_by_hand:
            tests[str(item.path), item.originalname].append(item)
    for (_, name), cases in tests.items():
        marker = cases[0].get_closest_marker("cases")
        kept = tried(name, len(cases), marker.args[0] if marker else 1)
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker("variant")
