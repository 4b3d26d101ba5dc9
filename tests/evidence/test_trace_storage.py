from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from harness import DeviceName, Trace
from harness.errors import InvalidRecord, TraceNotSaved
from harness.evidence.op import Op, Transfer, Transfers
from harness.evidence.storage import TRACE_SCHEMA_VERSION

CPU = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(3)]


def whole() -> Trace:
    """A trace in which every field has some other value somewhere."""
    return Trace(
        (
            Op("Tanh", "Tanh", "Tanh", CPU[1], DeviceName(kind="CPU", index=1), "forward", dtypes=("float32",)),
            Op("fn/TanhGrad", "TanhGrad", "XlaCluster", CPU[2], None, "gradient", "Tanh", (), ("Tanh",), "fn"),
            Op("fn/gone", "MatMul", None, None, None, "forward"),
            Op('odd "name"\\', "Exp", "_Fused", DeviceName("worker", 0, 1, "GPU", 0), None, "collective"),
        ),
        (Transfer(CPU[0], CPU[1], "Split", 24), Transfer(CPU[1], CPU[0], "Tanh:1", None)),
    )


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    path = whole().save(tmp_path / "golden.json")
    assert Trace.load(path) == whole()
    assert Trace.load(str(path)) == whole()
    assert not whole().diff(Trace.load(path))
    assert Trace.load(Trace((), ()).save(tmp_path / "empty.json")) == Trace((), ())


def test_a_trace_with_sizes_still_to_be_worked_out_is_saved_with_them(tmp_path: Path) -> None:
    made = Trace((), Transfers([lambda: [Transfer(CPU[0], CPU[1], "x", 8)]]))
    assert Trace.load(made.save(tmp_path / "lazy.json")).transfers == (Transfer(CPU[0], CPU[1], "x", 8),)


def test_the_file_has_one_op_a_line_so_that_a_review_shows_what_moved(tmp_path: Path) -> None:
    lines = whole().save(tmp_path / "golden.json").read_text(encoding="utf-8").splitlines()
    assert sum("executed_type" in line for line in lines) == 4
    assert json.loads("\n".join(lines))["schema_version"] == TRACE_SCHEMA_VERSION


def test_saving_again_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    Trace((), ()).save(path)
    whole().save(path)
    assert Trace.load(path) == whole()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="file modes")
def test_a_golden_file_can_be_read_by_others(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.touch()
    golden = whole().save(tmp_path / "golden.json")
    assert stat.S_IMODE(golden.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TraceNotSaved, match="No such file or directory; name a file in a writable folder") as caught:
        whole().save(tmp_path / "absent" / "golden.json")
    assert caught.value.path.endswith("golden.json")
    assert isinstance(caught.value, OSError)
    (tmp_path / "taken").mkdir()
    with pytest.raises(TraceNotSaved, match="directory"):
        whole().save(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def broken(**changes: object) -> str:
    op = {"name": "a", "type": "b", "executed_type": None, "device": None, "requested": None, "role": "forward"}
    return json.dumps({"schema_version": 1, "ops": [op | changes], "transfers": []})


GARBAGE = {
    "nothing": "",
    "text": "hello",
    "list": "[]",
    "no version": "{}",
    "no ops": '{"schema_version": 1}',
    "version is text": '{"schema_version": "1", "ops": [], "transfers": []}',
    "ops is a number": '{"schema_version": 1, "ops": 3, "transfers": []}',
    "op without fields": '{"schema_version": 1, "ops": [{}], "transfers": []}',
    "transfer without fields": '{"schema_version": 1, "ops": [], "transfers": [{}]}',
    "device": broken(device="somewhere/else"),
    "device is a number": broken(device=3),
    "role": broken(role="king"),
    "name": broken(name=7),
    "inputs": broken(inputs="Tanh"),
    "forward": broken(forward=[1]),
    "size": '{"schema_version": 1, "ops": [], "transfers": [{"source": "/CPU:0", "destination": "/CPU:1", '
    '"tensor": "x", "size_bytes": -4}]}',
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_trace_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRecord, match="not a saved trace") as caught:
        Trace.load(path)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)


def test_a_whole_op_is_no_garbage(tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    path.write_text(broken(), encoding="utf-8")
    assert [op.name for op in Trace.load(path).ops] == ["a"]


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InvalidRecord):
        Trace.load(path)
    with pytest.raises(InvalidRecord, match="No such file"):
        Trace.load(tmp_path / "absent.json")


def test_a_newer_file_is_refused_and_says_so(tmp_path: Path) -> None:
    path = whole().save(tmp_path / "golden.json")
    newer = path.read_text(encoding="utf-8").replace('"schema_version": 1', '"schema_version": 2')
    path.write_text(newer, encoding="utf-8")
    with pytest.raises(InvalidRecord, match="has schema_version 2, newer than 1: upgrade the harness"):
        Trace.load(path)
