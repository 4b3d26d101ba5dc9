"""The real machine on three logical CPUs: all that is asked of it in one process, and asserted one by one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from harness.hardware.machine import HOST

_MIB = 2**20


def patterns_on_the_card(machine: Any) -> dict[str, object]:
    import numpy as np

    from harness.hardware.machine import Mismatch, Pattern

    pattern = Pattern(0xFEDCBA9876543210, 0x9E3779B97F4A7C15)
    words = 9 * _MIB + 3  # two pieces, the second with an odd end
    buffer = machine.fill("CPU:1", 8 * words, pattern)
    index = np.arange(words, dtype=np.uint64)
    expected = np.uint64(pattern.first) + index * np.uint64(pattern.step)
    fetched = machine.fetch(buffer).view(np.uint64)
    same = Mismatch(0)
    flips = []
    for place, bit in ((0, 0), (2 * _MIB - 1, 63), (2 * _MIB, 1), (8 * _MIB, 31), (words - 1, 62)):
        wrong = expected.copy()
        wrong[place] ^= np.uint64(1 << bit)
        seen = machine.mismatch(machine.put(wrong, "CPU:2"), pattern)
        flips.append(seen == Mismatch(1, place, int(wrong[place])))
    two = expected.copy()
    two[[5, words - 2]] ^= np.uint64(6)
    constant = machine.fill("CPU:0", 8 * 5, Pattern(2**64 - 1))
    return {
        "pieces": len(buffer.pieces),
        "as numpy": bool(np.array_equal(fetched, expected)),
        "clean": machine.mismatch(buffer, pattern) == same,
        "other start": machine.mismatch(buffer, Pattern(pattern.first + 1, pattern.step)).count == words,
        "flips": flips,
        "two words": machine.mismatch(machine.put(two, "CPU:0"), pattern) == Mismatch(2, 5, int(two[5])),
        "constant": machine.fetch(constant).view(np.uint64).tolist() == [2**64 - 1] * 5,
        "constant clean": machine.mismatch(constant, Pattern(2**64 - 1)) == same,
    }


def copies(machine: Any) -> dict[str, object]:
    import ml_dtypes
    import numpy as np

    from harness.hardware.machine import Pattern

    pattern = Pattern(7, 3)
    buffer = machine.fill("CPU:0", 8 * _MIB, pattern)
    moved = machine.move(buffer, "CPU:1")
    first = memoryview(buffer.pieces[0])
    shared = np.shares_memory(first, memoryview(moved.pieces[0]))
    # The next copy gets the place of one that is gone, and never that of one that is kept, in whatever form.
    address = np.asarray(memoryview(moved.pieces[0])).ctypes.data
    kept = moved.pieces[0]
    del moved
    other = machine.fill("CPU:0", 8 * _MIB, Pattern(1, 1))
    beside_kept = machine.move(other, "CPU:1")
    kept_safe = int(kept[5]) == 7 + 3 * 5 and machine.mismatch(beside_kept, Pattern(1, 1)).count == 0
    del beside_kept, kept
    place = np.asarray(memoryview(machine.move(buffer, "CPU:1").pieces[0])).ctypes.data
    again = machine.move(buffer, "CPU:1")
    reused = np.asarray(memoryview(again.pieces[0])).ctypes.data == place
    swapped = machine.exchange([(buffer, "CPU:1"), (machine.put(np.arange(4.0), "CPU:1"), "CPU:2"), (other, "CPU:0")])
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    put = machine.put(array, "CPU:2")
    array[...] = -1
    fetched = machine.fetch(put)
    view = machine.fetch(put)[1:]
    machine.put(np.full((3, 4), 9, np.float32), "CPU:2")
    machine.fetch(machine.put(np.full((3, 4), 8, np.float32), "CPU:2"))
    round_trips = {}
    for dtype in ("float64", "float16", "int8", "int32", "uint64", "bool", "complex64", "bfloat16"):
        sent = (np.arange(6) % 2).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(2, 3)
        sent.flags.writeable = False
        there = machine.move(machine.put(sent, "CPU:1"), "CPU:2")
        back = machine.fetch(there)
        round_trips[dtype] = back.dtype == sent.dtype and bool(np.array_equal(back, sent)) and there.card == "CPU:2"
    return {
        "shares": shared,
        "address": address > 0,
        "kept safe": kept_safe,
        "reused": reused,
        "exchanged": [each.card for each in swapped],
        "exchanged values": [
            machine.mismatch(swapped[0], pattern).count,
            machine.fetch(swapped[1]).tolist(),
            machine.mismatch(swapped[2], Pattern(1, 1)).count,
        ],
        "put is a copy": fetched.tolist() == np.arange(12.0).reshape(3, 4).tolist(),
        "a view keeps its memory": view.tolist() == np.arange(12.0).reshape(3, 4)[1:].tolist(),
        "writable": bool(fetched.flags.writeable),
        "round trips": round_trips,
    }


def operations(machine: Any) -> dict[str, object]:
    import numpy as np
    import tensorflow as tf

    from harness.hardware.machine import Operation
    from harness.hardware.operations import matmul
    from harness.hardware.profile_rates import matrices

    traces = []

    def counted(a: Any, b: Any) -> Any:
        traces.append(1)
        return tf.matmul(a, b)

    def elsewhere(a: Any) -> Any:
        with tf.device("CPU:0"):
            return a + 1.0

    a, b = matrices(64, np.float32)
    operation = Operation("product", "float32", "float32", counted, np.matmul)
    buffers = [machine.put(each, "CPU:1") for each in (a, b)]
    result = machine.run(operation, "CPU:1", buffers, repeats=3)
    machine.run(operation, "CPU:1", buffers)
    int8 = [machine.put(each.astype(np.int8), "CPU:2") for each in (a, b)]
    return {
        "value": bool(np.array_equal(machine.fetch(result), a @ b)),
        "device": result.pieces[0].backing_device[-5:],
        "traces": len(traces),
        "int8": bool(np.array_equal(machine.fetch(machine.run(matmul(64, "int8"), "CPU:2", int8)), (a @ b))),
        "elsewhere": _refusal(
            lambda: machine.run(Operation("e", "float32", "float32", elsewhere, np.add), "CPU:1", buffers[:1])
        ),
        "other card": _refusal(lambda: machine.run(operation, "CPU:2", buffers)),
    }


def collectives(machine: Any) -> dict[str, object]:
    import numpy as np

    arrays = [np.arange(6, dtype=np.float32) + 10 * rank for rank in range(3)]
    total = np.sum(arrays, axis=0)
    wanted = {
        "all-reduce": [total] * 3,
        "all-gather": [np.concatenate(arrays)] * 3,
        "reduce-scatter": [total[:2], total[2:4], total[4:]],
        "broadcast": [arrays[0]] * 3,
    }
    exact = {}
    for algorithm in machine.algorithms():
        for kind, expected in wanted.items():
            # The second one takes the same instance again.
            for _ in range(2):
                found = machine.collective(kind, algorithm, arrays)
            exact[f"{kind} {algorithm}"] = all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
    return {
        "algorithms": list(machine.algorithms()),
        "exact": exact,
        "took": machine.collective_s > 0,
        "other shape": [
            each.tolist() for each in machine.collective("all-reduce", "ring", [np.ones((2, 2), np.float64)] * 3)
        ],
    }


def facts(machine: Any) -> dict[str, object]:
    from dataclasses import asdict

    from harness.hardware.machine import Machine, Pattern

    typed: Machine = machine
    reading = typed.reading("CPU:1")
    before = typed.clock_s()
    typed.wait_s(0.01)
    return {
        "cards": [asdict(card) for card in typed.cards],
        "present": typed.present == typed.cards,
        "waited": typed.clock_s() - before > 0.009,
        "free": [typed.free_bytes(name) for name in ("CPU:0", HOST)],
        "used": [typed.used_bytes(name) for name in ("CPU:2", HOST)],
        "at_s": reading.at_s,
        "full": _refusal(lambda: typed.fill("CPU:0", 2**50, Pattern(0))),
        "tensorflow": typed.software().tensorflow,
    }


def _refusal(call: Callable[[], object]) -> str:
    from harness.errors import HarnessError
    from harness.hardware.machine import DeviceMemoryFull

    try:
        call()
    except (HarnessError, DeviceMemoryFull) as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def software() -> dict[str, object]:
    """The software of this process as on a machine without a driver, and what of CUDA is loaded by asking."""
    import re
    from pathlib import Path

    from harness.hardware.nvml import Nvml
    from harness.hardware.software.measure import read_software

    found = read_software(Nvml(None), {"CUDA_VISIBLE_DEVICES": "3,1"})
    maps = Path("/proc/self/maps").read_text()
    loaded = sorted(set(re.findall(r"lib(?:cuda|cudart|cublas|cudnn|nccl)[\w.]*\.so[\w.]*", maps)))
    fields = ("tensorflow", "numpy", "python", "visible", "driver", "cudnn", "nccl", "missing_libraries", "numbering")
    return {"loaded": loaded, **{name: getattr(found, name) for name in fields}}


def ask_everything() -> None:
    # First, while nothing else has loaded a library.
    without_driver = software()
    from harness.checks.registry import SUITE
    from harness.devices.runtime import configure

    assert SUITE.machine is not None
    machine = SUITE.machine(configure("cpu:3"))
    parts = (patterns_on_the_card, copies, operations, collectives, facts)
    print(json.dumps({"software": without_driver, **{part.__name__: part(machine) for part in parts}}))


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> dict[str, Any]:
    # fresh_process is for one test; here one process answers many.
    import sys
    from pathlib import Path

    import harness

    root, here = Path(harness.__file__).resolve().parent.parent, Path(__file__).parent
    code = "import sys; sys.path[:0] = sys.argv[1:]; import test_real_machine; test_real_machine.ask_everything()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(here), str(root)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_pattern_is_what_numpy_makes_and_is_found_clean(answers: dict[str, Any]) -> None:
    seen = answers["patterns_on_the_card"]
    assert seen["pieces"] == 2
    assert {seen[name] for name in ("as numpy", "clean", "constant", "constant clean")} == {True}


def test_a_flipped_bit_is_found_at_its_word_in_every_chunk_and_piece(answers: dict[str, Any]) -> None:
    seen = answers["patterns_on_the_card"]
    assert seen["flips"] == [True] * 5
    assert seen["two words"]
    assert seen["other start"], "another pattern differs in every word"


def test_a_copy_between_logical_cpus_is_one_and_overwrites_nothing_that_is_kept(answers: dict[str, Any]) -> None:
    seen = answers["copies"]
    assert seen["shares"] is False
    assert seen["kept safe"]
    assert seen["reused"], "the memory of a copy that nobody keeps is written again"


def test_copies_at_once_arrive_each_where_it_should(answers: dict[str, Any]) -> None:
    seen = answers["copies"]
    assert seen["exchanged"] == ["CPU:1", "CPU:2", "CPU:0"]
    assert seen["exchanged values"] == [0, [0.0, 1.0, 2.0, 3.0], 0]


def test_what_is_put_and_fetched_is_a_copy_in_every_dtype(answers: dict[str, Any]) -> None:
    seen = answers["copies"]
    assert seen["put is a copy"]
    assert seen["a view keeps its memory"]
    assert seen["writable"]
    assert seen["round trips"] == dict.fromkeys(seen["round trips"], True)
    assert len(seen["round trips"]) == 8


def test_an_operation_runs_on_its_card_and_is_built_once(answers: dict[str, Any]) -> None:
    seen = answers["operations"]
    assert seen["value"]
    assert seen["int8"]
    assert seen["device"] == "CPU:1"
    assert seen["traces"] == 1


def test_a_result_that_lies_elsewhere_is_refused(answers: dict[str, Any]) -> None:
    seen = answers["operations"]
    assert seen["elsewhere"] == "EvidenceError: an op placed on CPU:1 left its result on CPU:0"
    assert seen["other card"].startswith("UsageError: an operation on CPU:2 was given a buffer of CPU:1")


def test_collectives_are_exact_by_every_algorithm(answers: dict[str, Any]) -> None:
    seen = answers["collectives"]
    assert seen["algorithms"] == ["ring", "hierarchical-copy", "reduce-to-one"]
    assert len(seen["exact"]) == 12
    assert seen["exact"] == dict.fromkeys(seen["exact"], True)
    assert seen["other shape"] == [[[3.0, 3.0], [3.0, 3.0]]] * 3
    assert seen["took"]


def test_what_the_machine_says_of_itself(answers: dict[str, Any]) -> None:
    seen = answers["facts"]
    assert [card["label"] for card in seen["cards"]] == ["CPU:0", "CPU:1", "CPU:2"]
    assert [card["device"][-12:] for card in seen["cards"]] == [f"device:CPU:{index}" for index in range(3)]
    assert {card["profile"] for card in seen["cards"]} == {None}, "a CPU is judged against the machine's own median"
    assert (seen["present"], seen["waited"]) == (True, True)
    assert all(value > 64 * _MIB for value in seen["free"] + seen["used"])
    assert seen["tensorflow"].startswith("2.")


def test_too_much_memory_is_refused(answers: dict[str, Any]) -> None:
    seen = answers["facts"]
    assert seen["full"] == f"DeviceMemoryFull: CPU:0 could not allocate {2**50} bytes"


def test_without_a_driver_nothing_of_cuda_is_loaded(answers: dict[str, Any]) -> None:
    import platform
    from importlib import metadata
    from pathlib import Path

    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("a driver is here, and then its libraries are what is asked about")
    seen = answers["software"]
    assert seen["loaded"] == []
    assert (seen["numpy"], seen["python"]) == (metadata.version("numpy"), platform.python_version())
    assert seen["tensorflow"].startswith("2.")
    assert seen["visible"] == "3,1"
    assert [seen[name] for name in ("driver", "cudnn", "nccl")] == [None, None, None]
    assert (seen["missing_libraries"], seen["numbering"]) == ([], [])
