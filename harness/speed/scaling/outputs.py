"""Compares the outputs of a program on each device set: the curve of a wrong program means nothing.

Each process writes the outputs of its first call to a file.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from harness.errors import OutputsDiffer
from harness.plural import plural
from harness.speed.outputs import Arrays, compare_outputs

#: Larger outputs are not kept: they would fill the disk, and take longer than the measurement.
MOST_BYTES = 256 * 1024 * 1024


def save_outputs(arrays: Arrays, path: Path) -> bool:
    """Write the arrays, also of TensorFlow's own dtypes; false if they are too large."""
    if sum(array.nbytes for array in arrays.values() if array is not None) > MOST_BYTES:
        return False
    path.write_bytes(pickle.dumps(dict(arrays)))
    return True


def load_outputs(path: Path) -> Arrays:
    """Read the arrays that a process of this run has written."""
    arrays: Arrays = pickle.loads(path.read_bytes())  # noqa: S301 - our own process wrote it
    return arrays


def difference(want: Arrays, have: Arrays) -> str | None:
    """Describe how two sets of outputs differ; ``None`` if they do not."""
    if want.keys() != have.keys():
        return f"`single` has {plural(len(want), 'output')}, `parallel` {len(have)}"
    try:
        compare_outputs(want, have)
    except OutputsDiffer as error:
        return f"{error.output}: {error.why}"
    return None
