"""The part of the pytest plug-in for memory: the fixture ``memory`` and two markers.

``device_memory`` limits the peak of a test's call; ``no_device_leaks`` takes the body of the test as one step of a
loop, and calls it again with the same fixtures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.devices.device import Devices
    from harness.speed.memory.memory import Memory

MARKER_LIMIT = "device_memory"
MARKER_LEAKS = "no_device_leaks"
MARKERS = (MARKER_LIMIT, MARKER_LEAKS)
MARKER_HELP = (
    "device_memory(limit, device=None): no device (or not this one) may hold more than `limit`, such as '2 GiB'",
    "no_device_leaks(steps=20, allowed=0): call the test `steps` times; memory may grow by `allowed` with each call",
)
_SIGNATURES: dict[str, Callable[..., Any]] = {
    MARKER_LIMIT: lambda limit, device=None: {"limit": limit, "device": device},
    MARKER_LEAKS: lambda steps=20, allowed=0: {"steps": steps, "allowed": allowed},
}


def is_marked(item: pytest.Item) -> bool:
    """Whether a test has one of the markers, and so needs devices."""
    return any(item.get_closest_marker(name) is not None for name in MARKERS)


class MemoryPlugin:
    """The fixture, and what the markers do. ``configured`` gives the devices of the session."""

    def __init__(self, configured: Callable[[], Devices]) -> None:
        self._configured = configured

    @pytest.fixture
    def memory(self, _harness_devices: Devices) -> Iterator[Memory]:
        """The :class:`harness.Memory` of the session's devices, watched since the fixture was set up."""
        from harness.speed.memory.memory import Memory

        watched = Memory(_harness_devices)
        watched.reset()
        yield watched
        watched.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        """Watch the call of a marked test, and repeat it."""
        if not is_marked(pyfuncitem):
            return (yield)
        from harness.errors import UsageError
        from harness.speed.memory.errors import MemoryGrows, MemoryUnknown
        from harness.speed.memory.memory import Memory
        from harness.speed.memory.sizes import parse_size

        failure = None
        try:
            limit, leaks = _given(pyfuncitem, MARKER_LIMIT), _given(pyfuncitem, MARKER_LEAKS)
            memory = Memory(self._configured())
            limited = None
            if limit is not None:
                parse_size(limit["limit"])
                chosen = limit["device"]
                limited = list(memory.devices) if chosen is None else [memory.device(chosen)]
                memory.reset()
            # The loop begins before the first call, so that it knows what was there.
            steps = iter(()) if leaks is None else memory.steady(**leaks)
            next(steps, None)
        except (UsageError, MemoryUnknown) as error:
            failure = str(error)
        if failure is not None:
            pytest.fail(failure, pytrace=False)
        try:
            result = yield
            if limited is not None and limit is not None:
                over = [
                    f"{device.parsed.short}: peak {peak}, limit {limit['limit']} ({peak.source})"
                    for device in limited
                    if (peak := memory.peak(device)) > limit["limit"]
                ]
                failure = "\n".join(over) or None
            again = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
            for _ in steps if failure is None else ():
                pyfuncitem.obj(**again)
        except (MemoryGrows, MemoryUnknown) as error:
            failure = str(error)
        finally:
            memory.close()
        if failure is not None:
            pytest.fail(failure, pytrace=False)
        return result


def _given(item: pytest.Function, name: str) -> dict[str, Any] | None:
    """The arguments of a marker; ``None`` without it."""
    from harness.errors import UsageError

    marker = item.get_closest_marker(name)
    if marker is None:
        return None
    if name == MARKER_LEAKS and inspect.iscoroutinefunction(item.obj):
        raise UsageError(f"@pytest.mark.{name}: the test is a coroutine; accepted: a test that is a function")
    signature = inspect.signature(_SIGNATURES[name])
    try:
        bound = signature.bind(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise UsageError(f"@pytest.mark.{name}: {error}; accepted: {name}{signature}") from error
    given: dict[str, Any] = _SIGNATURES[name](*bound.args, **bound.kwargs)
    return given
