"""Compares the outputs of a program on each device set: the curve of a wrong program means nothing.

Each process writes the outputs of its first call to a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import OutputsDiffer
from harness.plural import plural
from harness.speed.outputs import compare_outputs

Arrays = Mapping[str, NDArray[Any] | None]

#: Larger outputs are not kept: they would fill the disk, and take longer than the measurement.
MOST_BYTES = 256 * 1024 * 1024
_HEAD = "head"


def save_outputs(arrays: Arrays, path: Path) -> bool:
    """Write the arrays, also of TensorFlow's own dtypes; false if they are too large."""
    plain = {name: _plain(array) for name, array in arrays.items()}
    there = [array for array in plain.values() if array is not None]
    if sum(array.nbytes for array in there) > MOST_BYTES:
        return False
    head = [
        (name, None, None) if array is None else (name, _dtype_name(array), array.shape)
        for name, array in plain.items()
    ]
    stored: dict[str, Any] = {f"n{index}": np.frombuffer(each.tobytes(), np.uint8) for index, each in enumerate(there)}
    stored[_HEAD] = np.array(json.dumps(head))
    with path.open("wb") as file:
        np.savez(file, **stored)
    return True


def load_outputs(path: Path) -> dict[str, NDArray[Any] | None]:
    """Read what :func:`save_outputs` wrote."""
    found: dict[str, NDArray[Any] | None] = {}
    with np.load(path) as stored:
        number = 0
        for name, dtype, shape in json.loads(str(stored[_HEAD])):
            if dtype is None:
                found[name] = None
                continue
            found[name] = np.frombuffer(stored[f"n{number}"].tobytes(), _dtype(dtype)).reshape(shape)
            number += 1
    return found


def difference(want: Arrays, have: Arrays) -> str | None:
    """Describe how two sets of outputs differ; ``None`` if they do not, or if there are none."""
    if want.keys() != have.keys():
        return f"{plural(len(want), 'output')} and {len(have)}"
    if not any(array is not None and array.size for array in (*want.values(), *have.values())):
        return None
    try:
        compare_outputs(dict(want), dict(have))
    except OutputsDiffer as error:
        return str(error)
    return None


def _plain(array: NDArray[Any] | None) -> NDArray[Any] | None:
    """Convert strings, which come as objects, to bytes."""
    return array if array is None or array.dtype != object else array.astype(np.bytes_)


def _dtype_name(array: NDArray[Any]) -> str:
    # NumPy has no code for dtypes that are not its own, such as bfloat16.
    return str(array.dtype.name if array.dtype.kind == "V" else array.dtype.str)


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))
