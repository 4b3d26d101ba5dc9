"""Tells apart the items of one list among the inputs from those of another one, which may be alike in all shapes.

As each client's rows, and what each client is evaluated on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from harness.evidence.trace import Trace
from harness.lazy import tf


def with_origins(evidence: Trace, inputs: Mapping[str, Any]) -> Trace:
    """The trace, where what is known of each argument ends with the list that it is an item of; empty if of none."""
    found = [path for path, leaf in _paths(inputs) if isinstance(leaf, tf.Tensor)]
    if len(found) != len(evidence.arguments):
        return evidence
    origins = [path if found.count(path) > 1 else "" for path in found]
    known = zip(evidence.arguments.items(), origins, strict=True)
    return replace(evidence, arguments={name: (*kind, origin) for (name, kind), origin in known})


def _paths(value: Any, path: str = "", listed: bool = False) -> Iterator[tuple[str, Any]]:
    """The leaves of a nest in order, each with the keys that lead to it: all items of one list have the same.

    The items of a tuple in a list, such as each client's rows and labels, have places of their own.
    """
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _paths(value[key], f"{path}.{key}", listed)
    elif isinstance(value, (list, tuple)):
        apart = isinstance(value, tuple) and (listed or hasattr(value, "_fields"))
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}.{index}" if apart else path, listed=True)
    else:
        yield path, value
