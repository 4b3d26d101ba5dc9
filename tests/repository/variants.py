"""A pytest plug-in that has tox try some cases of a test that takes long for each; its other cases are variants.

``@pytest.mark.cases("padded", "shifted")`` names the cases, by their ids or the beginnings of these;
``@pytest.mark.cases(4)`` has four cases tried, spread evenly over the list. Where the cases are named, they are those
that run lines of the package which no other test of plain tox runs. The environments ``long``, ``kernels`` and
``softgpu`` of tox run the variants.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest


def tried(test: str, ids: Sequence[str], wanted: Sequence[str | int]) -> set[int]:
    """The indices of the cases that are tried: those that are named, or so many, spread evenly; at least one.

    The first of a number of cases depends on the test's name, so that of two tests with the modes "eager" and "graph"
    not both are tried in the first mode alone.
    """
    names = [each for each in wanted if isinstance(each, str)]
    named = {
        index for index, each in enumerate(ids) if any(each == name or each.startswith(f"{name}-") for name in names)
    }
    count = min(sum(each for each in wanted if isinstance(each, int)) or (not named), len(ids))
    first = zlib.crc32(test.encode())
    return named | {(first + number * len(ids) // count) % len(ids) for number in range(count)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Before pytest deselects by marker.
    tests: dict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        chosen_by_hand = any(item.get_closest_marker(name) for name in ("long", "variant"))
        if isinstance(item, pytest.Function) and item.get_closest_marker("cases") and not chosen_by_hand:
            tests[str(item.path), item.originalname].append(item)
    for (_, name), cases in tests.items():
        marker = cases[0].get_closest_marker("cases")
        assert marker is not None
        kept = tried(name, [case.callspec.id for case in cases], marker.args)
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker("variant")
