"""The case of a failed verification in a file: inputs, variables, seed, and how the program was started.

``harness replay FILE`` starts it again, with the file's name in the environment; the call of ``verify`` on the same
line then takes its inputs, variables and seed from there. Where that line has another text by now, the call on a line
with the text that it had does. A file is a NumPy archive that loads no code.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from harness import session
from harness.errors import InvalidRecord, UsageError
from harness.lazy import tf
from harness.plural import plural

#: The environment variable that names the file.
REPLAY = "HARNESS_REPLAY"
#: The environment variable that names a file, which is there once a call of ``verify`` has taken the case.
TAKEN = "HARNESS_REPLAY_TAKEN"
CASE_SCHEMA_VERSION = 2
#: Where pytest keeps the test that is running: ``tests/test_a.py::test_b (call)``.
_TEST = "PYTEST_CURRENT_TEST"


def is_folder_name(save: object) -> bool:
    """Whether a case can be asked to be saved there: a path that is not empty, and no file."""
    return isinstance(save, (str, Path)) and str(save) != "" and (not Path(save).exists() or Path(save).is_dir())


def size_bytes(inputs: Mapping[str, Any], variables: Sequence[Any]) -> int:
    """What the values of the inputs and variables take in memory; strings count as their references."""
    leaves = tf.nest.flatten(dict(inputs), expand_composites=True)
    held = [*filter(_is_kept, leaves), *variables]
    return sum((tf.TensorShape(each.shape).num_elements() or 0) * tf.as_dtype(each.dtype).size for each in held)


def _is_kept(leaf: Any) -> bool:
    """Whether a leaf is a tensor with values; the call has its own data sets and other things without."""
    return tf.is_tensor(leaf) and leaf.dtype not in (tf.variant, tf.resource)


def _text_at(place: str) -> str:
    """The text of a line of a file in the working directory; empty where there is none."""
    file, _, line = place.rpartition(":")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[int(line) - 1].strip() if 0 < int(line) <= len(lines) else ""


@dataclass(frozen=True)
class SavedCase:
    """``command`` starts the program in the folder ``cwd``; ``place`` is the line that calls ``verify``, with its text.

    ``inputs`` are the leaves that are tensors with values, by their number among all leaves, and ``variables`` those
    that were named. ``dtypes`` names the dtypes that NumPy has not, such as bfloat16.
    """

    command: list[str]
    cwd: str
    place: str
    seed: int
    modes: list[str]
    spec: str
    reason: str
    inputs: dict[str, NDArray[Any]]
    variables: list[NDArray[Any]]
    dtypes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    schema_version: int = CASE_SCHEMA_VERSION

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Any],
        variables: Sequence[NDArray[Any]],
        seed: int,
        modes: Sequence[str],
        spec: str,
        place: str,
        reason: str,
    ) -> SavedCase:
        """The case of a call of ``verify`` in this process."""
        leaves = tf.nest.flatten(dict(inputs), expand_composites=True)
        arrays = {str(number): leaf.numpy() for number, leaf in enumerate(leaves) if _is_kept(leaf)}
        test = os.environ.get(_TEST, "").rpartition(" ")[0]
        command = [sys.executable, *sys.orig_argv[1:]]
        if test:
            # From any folder: pytest names a test relative to its own root.
            test = f"{session.root or Path.cwd()}/{test}"
            devices = [f"--harness-devices={spec}"] if spec else []
            command = [sys.executable, "-m", "pytest", test, *devices, *session.options]
        # A test may have gone to another folder, which is missing afterwards.
        folder = str(session.started_in or Path.cwd())
        return cls(
            command,
            folder,
            place,
            seed,
            list(modes),
            spec,
            reason,
            arrays,
            list(variables),
            text=_text_at(place),
        )

    def kept_in(self, folder: Path) -> str:
        """Write the case into a folder, and say how to replay it; or that it cannot be written, and why."""
        try:
            return f"Replay: harness replay {shlex.quote(str(self.save(folder)))}"
        except OSError as error:
            return f"The case could not be saved in {folder}: {error.strerror or error}; name another folder"

    def save(self, folder: Path) -> Path:
        """Write the case into a folder, under a name that is still free there."""
        folder.mkdir(parents=True, exist_ok=True)
        name = "".join(each if each.isalnum() else "_" for each in self.place) or "case"
        for number in itertools.count(1):
            path = folder / f"{name}_{number}.npz"
            # Other workers of the same session save here too.
            with contextlib.suppress(FileExistsError):
                self._write(path)
                break
        return path

    def save_as(self, path: Path) -> None:
        """Write the case into a file, in one step in place of what that file was."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        self._write(beside)
        beside.replace(path)

    def _write(self, path: Path) -> None:
        """Write a new file, or none. Raise FileExistsError if it is there."""
        arrays = {f"input {number}": array for number, array in self.inputs.items()}
        arrays |= {f"variable {number}": array for number, array in enumerate(self.variables)}
        known = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
        plain = {key: value for key, value in asdict(self).items() if key not in ("inputs", "variables", "dtypes")}
        stored = {
            name: array.view(f"u{array.dtype.itemsize}") if name in known else array for name, array in arrays.items()
        }
        stored = {name: array.astype("S") if array.dtype == object else array for name, array in stored.items()}
        with path.open("xb") as file:
            try:
                np.savez_compressed(file, case=np.array(json.dumps({**plain, "dtypes": known})), **stored)  # type: ignore[arg-type]
            except BaseException:
                path.unlink()  # what is cut off is no case
                raise

    @classmethod
    def load(cls, path: Path) -> SavedCase:
        """Read a case. Raise InvalidRecord if the file holds none."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            plain = json.loads(str(arrays.pop("case")))
            if plain["schema_version"] > CASE_SCHEMA_VERSION:
                raise InvalidRecord(
                    path,
                    f"has schema_version {plain['schema_version']}, newer than {CASE_SCHEMA_VERSION}: upgrade the "
                    "harness",
                )
            for name, dtype in plain["dtypes"].items():
                arrays[name] = arrays[name].view(np.dtype(dtype))
            count = sum(name.startswith("variable ") for name in arrays)
            inputs = {name.removeprefix("input "): array for name, array in arrays.items() if name.startswith("input ")}
            return cls(inputs=inputs, variables=[arrays[f"variable {number}"] for number in range(count)], **plain)
        except (
            OSError,
            EOFError,
            BadZipFile,
            zlib.error,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            if isinstance(error, InvalidRecord):
                raise
            # NumPy's own message advises to load any other file with pickle.
            why = error.strerror if isinstance(error, OSError) else "verify(..., save=FOLDER) did not write it"
            raise InvalidRecord(path, f"not a saved case: {why}") from error

    @classmethod
    def wanted(cls, place: str | None) -> SavedCase | None:
        """The case that is to be replayed by a call of ``verify`` on this line; ``None`` where it is another one."""
        path = os.environ.get(REPLAY)
        if not path:
            return None
        case = cls.load(Path(path))
        if case.place != place and not case._has_moved_to(place or ""):
            return None
        if taken := os.environ.get(TAKEN):
            Path(taken).touch()
        return case

    def _has_moved_to(self, place: str) -> bool:
        """Whether the line of the call is this one by now: the one of the same text in the same file."""
        same_file = self.place.rpartition(":")[0] == place.rpartition(":")[0]
        return same_file and self.text != "" and _text_at(self.place) != self.text == _text_at(place)

    def put_in(self, inputs: Mapping[str, Any], variables: Sequence[Any]) -> dict[str, Any]:
        """The inputs of a call with this case's values in their place; its variables are assigned.

        Raise UsageError if the call has other inputs or variables than the case.
        """
        leaves = tf.nest.flatten(dict(inputs), expand_composites=True)
        tensors = {str(number) for number, leaf in enumerate(leaves) if _is_kept(leaf)}
        if tensors != set(self.inputs) or len(variables) != len(self.variables):
            raise UsageError(
                f"the saved case of {self.place} has {plural(len(self.inputs), 'input')} and "
                f"{plural(len(self.variables), 'variable')}, but the call has {len(tensors)} and {len(variables)}; the "
                "program has changed: save the case again"
            )
        for number, array in self.inputs.items():
            leaves[int(number)] = tf.constant(array, leaves[int(number)].dtype)
        for variable, array in zip(variables, self.variables, strict=True):
            variable.assign(array)
        packed: dict[str, Any] = tf.nest.pack_sequence_as(dict(inputs), leaves, expand_composites=True)
        return packed
