from __future__ import annotations

import functools
from typing import Any

from harness.parallel.closure import carried

MARK = object()


class Holder:
    def __init__(self, inside: object) -> None:
        self.inside = {"list": [inside]}

    def method(self) -> object:
        return self.inside

    def __call__(self) -> object:
        return self.inside


def holds(fn: Any) -> bool:
    return carried(fn, lambda item: item is MARK) == [MARK]


def test_closures_defaults_globals_partials_methods_and_attributes_are_looked_into() -> None:
    held = [(MARK,)]
    assert holds(lambda: held)
    assert holds(lambda x=MARK: x)
    assert holds(lambda: MARK)
    assert holds(functools.partial(lambda x: x, MARK))
    assert holds(functools.partial(lambda x: x, x=MARK))
    assert holds(Holder(MARK).method)
    assert holds(Holder(MARK))
    inner = Holder(MARK)
    assert holds(lambda: inner())


def test_what_is_not_carried_is_not_found() -> None:
    assert not holds(lambda: 1)
    assert not holds(Holder(None))
    assert not holds(len)


def test_cycles_and_names_bound_later_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert carried(lambda: loop, lambda item: item is MARK) == []
    assert carried(lambda: later, lambda item: item is MARK) == []
    later = MARK
    assert holds(lambda: later)
