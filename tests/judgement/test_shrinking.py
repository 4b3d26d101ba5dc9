"""A failing case is made smaller until nothing can be taken away, and can be saved and run again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import session
from harness.errors import InvalidRecord, UsageError
from harness.faults.samples import sample
from harness.judgement.saved_case import REPLAY, SavedCase, size_bytes
from harness.judgement.shrinking import Programs, smallest
from harness.records import Exercised, Finding, Verdict


def _centred(x: Any) -> dict[str, Any]:
    """Not row-wise: the mean of the batch is subtracted in one of the outputs."""
    return {"all": x - tf.reduce_mean(x, axis=0), "each": tf.tanh(x)}


def _row_wise(x: Any) -> dict[str, Any]:
    return {"all": x * 2.0, "each": tf.tanh(x)}


def test_a_failure_says_with_how_little_it_fails_alike(devices: harness.Devices) -> None:
    inputs = {"x": sample(4 * len(devices), 3)}
    program = harness.make_parallel(_centred, devices)
    found = harness.verify(program, _centred, inputs, devices=devices, modes=["eager"], shrink=True)
    rows = 4 * len(devices)
    assert f"still fails with 2 of {rows} rows, 2 of {len(devices)} devices, output['all'] alone" in found.reason, found
    right = harness.make_parallel(_row_wise, devices)
    passed = harness.verify(right, _row_wise, inputs, devices=devices, modes=["eager"], shrink=True)
    assert passed.verdict is Verdict.PASS
    assert "still fails" not in passed.reason


def test_a_function_of_the_devices_makes_a_program_for_fewer(devices: harness.Devices) -> None:
    def towers(devices: harness.Devices) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            parts = []
            for device, part in _parts(devices, x):
                with tf.device(device.name):
                    parts.append(tf.nn.softmax(part, axis=0))
            return tf.concat(parts, 0)

        return program

    inputs = {"x": sample(2 * len(devices), 3)}
    found = harness.verify(
        towers(devices), lambda x: tf.nn.softmax(x, axis=0), inputs, devices=devices, modes=["eager"], shrink=towers
    )
    assert f"2 of {len(devices)} devices" in found.reason, found


def test_where_fewer_devices_fail_fewer_rows_are_tried_again(devices: harness.Devices) -> None:
    def towers(devices: harness.Devices) -> Callable[..., Any]:
        def program(x: Any) -> Any:
            parts = []
            for index, (device, part) in enumerate(zip(devices, tf.split(x, len(devices)), strict=True)):
                with tf.device(device.name):
                    parts.append(tf.tanh(part) * (1.1 if index == 1 else 1.0))
            return tf.concat(parts, 0)

        return program

    rows, count = 3 * len(devices), len(devices)
    inputs = {"x": sample(rows, 3)}
    found = harness.verify(towers(devices), tf.tanh, inputs, devices=devices, modes=["eager"], shrink=towers)
    assert f"fails with 2 of {rows} rows, 2 of {count} devices" in found.reason, found


def _parts(devices: harness.Devices, x: Any) -> list[tuple[harness.Device, Any]]:
    count = len(devices)
    sizes = [int(x.shape[0]) // count + (index < int(x.shape[0]) % count) for index in range(count)]
    return list(zip(devices, tf.split(x, sizes), strict=True))


def test_of_many_rows_few_numbers_are_tried_even_and_odd_ones() -> None:
    counts: list[int] = []

    def judge(case: Programs, _: str) -> harness.Verification:
        counts.append(len(case.inputs["x"]))
        return passed

    finding = Finding("value", "output", None, "1", "2", "differs", mode="eager")
    failed = harness.Verification(Verdict.FAIL, "differs", (finding,), Exercised())
    passed = harness.Verification(Verdict.PASS, "equal", (), Exercised())
    programs = Programs(tf.tanh, tf.tanh, {"x": tf.ones((1000, 2))}, harness.Devices((), spec=""))
    assert not smallest(failed, programs, None, judge)
    assert counts == [*range(1, 9), 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513]


def test_what_cannot_make_a_program_is_refused(devices: harness.Devices) -> None:
    with pytest.raises(UsageError, match="shrink='small'; accepted: True, False, or a function"):
        harness.verify(tf.tanh, tf.tanh, {"x": [1.0]}, devices=devices, shrink="small")  # type: ignore[arg-type]


def _verified(devices: harness.Devices, x: Any, start: float, folder: Path | None) -> tuple[harness.Verification, Any]:
    scale = tf.Variable(start)
    program = harness.make_parallel(lambda x: tf.sort(x * scale, axis=0), devices)
    reference = lambda x: tf.sort(x * scale, axis=0)  # noqa: E731
    found = harness.verify(
        program,
        reference,
        {"x": x},
        devices=devices,
        variables=iter([scale]),
        gradients=False,
        modes=["eager"],
        exact=True,  # else equal rows are looked at again, with others
        save=folder,
    )
    return found, scale


def test_a_saved_failure_brings_its_inputs_and_variables(
    devices: harness.Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 2 * len(devices)
    wrong, even = sample(rows, 3), np.ones((rows, 3), np.float32)
    failed, _ = _verified(devices, wrong, 2.0, tmp_path)
    assert failed.verdict is Verdict.FAIL
    saved = re.search(r"Replay: harness replay (.*\.npz)$", failed.reason)
    assert saved is not None, failed
    case = SavedCase.load(Path(saved[1]))
    assert case.place.startswith("tests/judgement/test_shrinking.py:")
    assert case.command[1:3] == ["-m", "pytest"]
    # A test's name is relative to pytest's root, which is not the folder that pytest was started in.
    assert case.command[3].startswith(f"{Path(__file__).resolve()}::test_a_saved_failure")
    # Equal rows are sorted already, so that the same program passes, and nothing is saved.
    assert _verified(devices, even, 3.0, tmp_path)[0].verdict is Verdict.PASS
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setenv(REPLAY, saved[1])
    again, scale = _verified(devices, even, 3.0, None)
    assert again.verdict is Verdict.FAIL
    assert again.reason == failed.reason.partition(". Replay:")[0]
    assert float(scale) == 2.0


def test_a_session_gets_the_case_of_a_failure_unless_it_is_too_large(
    devices: harness.Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sample(2 * len(devices), 3)
    kept: list[tuple[Any, int]] = []
    for most_bytes in (None, rows.nbytes + 4, rows.nbytes + 3):
        cases = session.Cases(lambda case, size: kept.append((case, size)), most_bytes)
        monkeypatch.setattr(session, "cases", cases)
        found, _ = _verified(devices, rows, 2.0, None)
        assert "harness replay" not in found.reason  # the summary of the session says it
        assert _verified(devices, np.ones_like(rows), 3.0, None)[0].passed
    assert [size for _, size in kept] == [rows.nbytes + 4] * 3
    everything, fitting, too_large = (case for case, _ in kept)
    assert too_large is None
    for case in (everything, fitting):
        assert case.variables == [2.0]
        np.testing.assert_array_equal(case.inputs["0"], rows)


def test_a_folder_that_cannot_be_written_costs_the_case_and_not_the_findings(devices: harness.Devices) -> None:
    failed, _ = _verified(devices, sample(2 * len(devices), 3), 2.0, Path("/dev/null/x"))
    assert failed.verdict is Verdict.FAIL
    assert failed.findings
    assert failed.reason.endswith(". The case could not be saved in /dev/null/x: Not a directory; name another folder")


def test_what_is_written_of_a_case_before_the_disk_is_full_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    said = SavedCase.of({}, [], 5, ["graph"], "cpu:4", "train.py:7", "why").kept_in(tmp_path)
    assert said == f"The case could not be saved in {tmp_path}: No space left on device; name another folder"
    assert list(tmp_path.iterdir()) == []


def test_the_command_to_replay_a_case_can_be_copied_into_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "my cases"
    said = SavedCase.of({}, [], 5, ["graph"], "cpu:4", "train.py:7", "why").kept_in(folder)
    *_, file = shlex.split(said)
    assert SavedCase.load(Path(file)).reason == "why"


def test_an_empty_path_is_no_folder_for_cases(devices: harness.Devices) -> None:
    with pytest.raises(UsageError, match="save=''; accepted: the path of a folder"):
        harness.verify(tf.tanh, tf.tanh, {"x": [1.0]}, devices=devices, save="")


def test_what_has_no_values_is_left_to_the_call(tmp_path: Path) -> None:
    inputs = {"a": tf.constant([1.0]), "data": tf.data.Dataset.range(3), "rows": tf.ragged.constant([[1], [2, 3]])}
    assert size_bytes(inputs, [tf.Variable([1.0, 2.0])]) == 4 + 3 * 4 + 3 * 8 + 2 * 4
    case = SavedCase.load(SavedCase.of(inputs, [], 5, ["graph"], "cpu:4", "train.py:7", "why").save(tmp_path))
    other = {"a": tf.constant([2.0]), "data": tf.data.Dataset.range(2), "rows": tf.ragged.constant([[4], [5, 6]])}
    back = case.put_in(other, [])
    assert back["a"].numpy() == [1.0]
    assert back["rows"].to_list() == [[1], [2, 3]]
    assert len(back["data"]) == 2, "the data set of the call"


def test_dtypes_that_numpy_has_not_are_saved_too(tmp_path: Path) -> None:
    inputs = {"a": tf.constant([1.5, 2.5], tf.bfloat16), "b": tf.constant(["left", "right"]), "c": 3}
    path = SavedCase.of(inputs, [], 5, ["graph"], "cpu:4", "train.py:7", "why").save(tmp_path)
    case = SavedCase.load(path)
    assert (case.seed, case.modes, case.spec, case.reason) == (5, ["graph"], "cpu:4", "why")
    other = {"a": tf.zeros([2], tf.bfloat16), "b": tf.constant(["", ""]), "c": 4}
    back = case.put_in(other, [])
    assert back["a"].dtype == tf.bfloat16
    assert back["a"].numpy().tolist() == [1.5, 2.5]
    assert back["b"].numpy().tolist() == [b"left", b"right"]
    assert back["c"] == 4
    with pytest.raises(UsageError, match="save the case again"):
        case.put_in({"a": other["a"]}, [])


def test_a_file_that_is_no_case_is_refused(tmp_path: Path) -> None:
    whole = SavedCase.of({"a": tf.ones([9])}, [], 5, ["graph"], "cpu:4", "train.py:7", "why").save(tmp_path)
    other = SavedCase.of({"a": tf.ones([9])}, [], 5, ["graph"], "cpu:4", "train.py:7", "why").save(tmp_path)
    assert other != whole
    path = tmp_path / "case.npz"
    for content in (b"no archive", b"", whole.read_bytes()[:-40]):
        path.write_bytes(content)
        with pytest.raises(InvalidRecord, match=r"not a saved case: verify\(\.\.\., save=FOLDER\) did not write it"):
            SavedCase.load(path)
    with pytest.raises(InvalidRecord, match="not a saved case: Is a directory"):
        SavedCase.load(tmp_path)
