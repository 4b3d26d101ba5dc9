"""The types of the plug-in's fixtures, for annotations: ``def test_it(devices: Devices, verify: Verify) -> None``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, overload

from harness.devices.device import Device, Devices
from harness.evidence.trace import Trace
from harness.evidence.tracing import Tracing
from harness.judgement.verification import Verification
from harness.speed.memory.memory import Memory
from harness.speed.record import SpeedupRecord, Work

__all__ = ["Devices", "Memory", "Speedup", "Tracer", "Verify"]


class Verify(Protocol):
    """The fixture ``verify``: ``harness.assert_parallel`` on the devices of the session."""

    def __call__(
        self,
        parallel: Callable[..., Any],
        reference: Callable[..., Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        devices: Sequence[Device] = ...,
        variables: Iterable[Any] = (),
        gradients: bool | None = None,
        modes: Sequence[str] = ("eager", "graph"),
        oracle: Callable[..., Any] | None = None,
        exact: bool | None = None,
        pattern: str | None = None,
        accept: Sequence[tuple[str, str]] = (),
        prove: bool | str | None = None,
        seed: int = 0,
        shrink: bool | Callable[[Devices], Callable[..., Any]] = False,
        save: Any = None,
        check: bool = True,
    ) -> Verification:
        """Verify; with ``check``, raise unless it passes. The arguments are those of ``harness.verify``."""


class Tracer(Protocol):
    """The fixture ``trace``: ``harness.trace``, with the devices configured."""

    @overload
    def __call__(self) -> Tracing: ...
    @overload
    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Trace: ...


class Speedup(Protocol):
    """The fixture ``speedup``: times two callables without arguments against each other."""

    def __call__(
        self,
        single: Callable[[], Any],
        parallel: Callable[[], Any],
        *,
        devices: Sequence[Device] = ...,
        work: Work | None = None,
        tolerance: float | None = None,
    ) -> SpeedupRecord:
        """Measure; by default on the devices of the session."""
