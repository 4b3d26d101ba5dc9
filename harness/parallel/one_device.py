"""The single-device run of a program that has no other version: the same program, all of it on its first device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness._tensorflow import as_autograph, interface
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.errors import InvalidDeviceName


def on_first_device(fn: Callable[..., Any], devices: Sequence[Device]) -> Callable[..., Any]:
    """``fn`` with each scope of one of ``devices`` replaced by a scope of the first of them.

    It computes what ``fn`` computes, in the same order: what each tower does by itself, such as batch normalization, it
    does here too. Variables stay where they are, and ops that TensorFlow runs beside their variable run there.
    A ``tf.function`` in ``fn`` has a trace of its own for it.
    """

    def on_first(*args: Any, **kwargs: Any) -> Any:
        with _scopes_replaced(devices):
            return as_autograph(fn)(*args, **kwargs)

    # AutoGraph passes this function by and converts the user's callable inside.
    on_first.autograph_info__ = None  # type: ignore[attr-defined]
    on_first.fn = fn  # type: ignore[attr-defined]
    on_first.is_first_device_run = True  # type: ignore[attr-defined]
    return on_first


@contextmanager
def _scopes_replaced(devices: Sequence[Device]) -> Iterator[None]:
    """Open the scope of the first device wherever this process opens one of another of ``devices``."""
    private = interface()
    first, others = devices[0].name, [device.parsed for device in devices[1:]]
    context, graph, traces = private.context.Context, private.graph, private.function_context
    eager_scope, graph_scope, trace_key = context.device, graph.device, traces.make_function_context

    def replaced(name: Any) -> Any:
        text = name.to_string() if hasattr(name, "to_string") else name
        if not isinstance(text, str):
            return name
        try:
            wanted = DeviceName.parse(text)
        except InvalidDeviceName:
            return name
        named = wanted.kind is not None and wanted.index is not None
        return first if named and any(device.matches(wanted) for device in others) else name

    def own_trace(scope_type: Any = None) -> Any:
        key = trace_key(scope_type)
        return key._replace(context=(key.context, "on the first device", *(device.name for device in devices)))

    context.device = lambda self, name: eager_scope(self, replaced(name))
    graph.device = lambda self, name: graph_scope(self, replaced(name))
    traces.make_function_context = own_trace
    try:
        yield
    finally:
        context.device, graph.device, traces.make_function_context = eager_scope, graph_scope, trace_key
