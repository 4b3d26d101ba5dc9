"""Takes results apart that ``tf.nest`` leaves whole, or whose parts it does not name: objects with fields."""

from __future__ import annotations

import dataclasses
import functools
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from harness.lazy import tf


def in_fields(value: Any) -> Any:
    """``value`` with a named tuple of the fields in the place of each dataclass, attrs class and extension type.

    A field that is neither a tensor, an array, a number nor a text cannot be compared: it is ``None``. Other composite
    tensors, such as distributions, become tuples of their tensors; ragged and sparse ones stay.
    """
    if isinstance(value, Mapping):
        return _rebuilt(value, list(value.values()), lambda parts: dict(zip(value, parts, strict=True)))
    if isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        made = _record(type(value).__name__, tuple(fields)) if fields else None
        return _rebuilt(value, value, lambda parts: made(*parts) if made is not None else tuple(parts))
    names = _field_names(value)
    if names is not None:
        return _record(type(value).__name__, names)(*(_field(getattr(value, name)) for name in names))
    return _components(value)


def _rebuilt(value: Any, parts: Any, make: Any) -> Any:
    plain = [in_fields(part) for part in parts]
    return make(plain) if any(one is not other for one, other in zip(plain, parts, strict=True)) else value


def _field_names(value: Any) -> tuple[str, ...] | None:
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if hasattr(value, field.name))
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(field.name for field in kind.__attrs_attrs__)
    if isinstance(value, tf.experimental.ExtensionType):
        annotated = (name for base in reversed(kind.__mro__) for name in vars(base).get("__annotations__", ()))
        return tuple(name for name in dict.fromkeys(annotated) if name in vars(value))
    return None


def _field(value: Any) -> Any:
    plain = in_fields(value)
    known = tf.is_tensor(plain) or isinstance(plain, (bool, int, float, complex, str, bytes, Mapping, list, tuple))
    return plain if known or hasattr(plain, "__array__") else None


def _components(value: Any) -> Any:
    if tf.is_tensor(value) or hasattr(value, "assign") or isinstance(value, tf.IndexedSlices):
        return value
    parts = tf.nest.flatten(value, expand_composites=True)
    whole = (len(parts) == 1 and parts[0] is value) or not all(map(tf.is_tensor, parts))
    return value if whole or any(part.dtype in (tf.resource, tf.variant) for part in parts) else tuple(parts)


@functools.cache
def _record(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields, rename=True)
