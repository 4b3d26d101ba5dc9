"""What TensorFlow says of an op's type: its arguments, its dtypes, and its kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from harness._tensorflow import interface

#: What TensorFlow calls a kernel that serves every kind of device, as those of ops on handles and shapes do.
_ANY_KIND = "DEFAULT"


def attribute_text(attributes: Mapping[str, Any], name: str) -> str | None:
    """A text attribute of a node, or ``None``."""
    return attributes[name].s.decode() if name in attributes else None


@lru_cache(maxsize=1024)
def op_arguments(op_type: str, side: str) -> tuple[Any, ...]:
    """The definitions of an op's arguments on the side ``input`` or ``output``."""
    return tuple(getattr(interface().op_def_registry.get(op_type), f"{side}_arg", ()))


@lru_cache(maxsize=1024)
def written_type(kernel: str) -> str:
    """The op type that a oneDNN kernel stands for: ``MatMul`` for ``_MklMatMul``; any other type as it is.

    What oneDNN makes of several ops is named as TensorFlow's own fusions are: ``_FusedMatMul``.
    """
    if not kernel.startswith("_Mkl"):
        return kernel
    plain = kernel.removeprefix("_Mkl").removeprefix("Native")
    return plain if interface().op_def_registry.get(plain) is not None else f"_{plain}"


@lru_cache(maxsize=64)
def dtype_name(number: int) -> str:
    """Name of a dtype from its number in ``types.proto``."""
    import tensorflow as tf

    return str(tf.dtypes.as_dtype(number).name)


def output_dtypes(op_type: str, attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the dtypes of a node's outputs, from its op definition and attributes. Empty where not known."""
    names: list[str] = []
    for argument in op_arguments(op_type, "output"):
        if argument.type_list_attr:
            types = list(attributes[argument.type_list_attr].list.type) if argument.type_list_attr in attributes else []
        elif argument.type_attr:
            types = [attributes[argument.type_attr].type] if argument.type_attr in attributes else []
        else:
            types = [argument.type]
        if argument.number_attr and argument.number_attr in attributes:
            types = types * attributes[argument.number_attr].i
        names.extend(dtype_name(kind) for kind in types if kind)
    return tuple(names)


def has_kernel(op_type: str, kind: str, dtypes: Collection[str]) -> bool:
    """Whether TensorFlow has a kernel for an op on devices of ``kind``, such as ``GPU``, for any of these dtypes.

    ``dtypes`` are those of its inputs and outputs. A kernel that names no dtypes serves all. Of a type that has no
    kernel on any device, as of one that XLA made, nothing is known: it counts as one that has.
    """
    served = _served(op_type)
    return not served or any(
        where in (kind, _ANY_KIND) and (not types or not dtypes or not types.isdisjoint(dtypes))
        for where, types in served
    )


@lru_cache(maxsize=1024)
def _served(op_type: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """The kind of device and the dtypes that each kernel of an op serves."""
    kernels = interface().kernels.get_registered_kernels_for_op(op_type).kernel
    return tuple(
        (
            kernel.device_type,
            frozenset(dtype_name(number) for limit in kernel.constraint for number in limit.allowed_values.list.type),
        )
        for kernel in kernels
    )
