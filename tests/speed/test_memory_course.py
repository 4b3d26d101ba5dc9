"""Memory over time, from profiles made by hand: what is alive at the peak, and that nothing is taken for known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xspaces import START_NS, Made, space

from harness.devices.name import DeviceName
from harness.evidence.op import Op, Role, Transfer
from harness.evidence.trace import Trace
from harness.speed.memory.before import Before
from harness.speed.memory.course import courses_of
from harness.speed.memory.labels import Label, Labels, layers_of_scopes
from harness.speed.memory.record import Course
from harness.speed.timeline.xplane import Capture, capture_of

TASK = "/job:localhost/replica:0/task:0"
GPU, OTHER = f"{TASK}/device:GPU:0", f"{TASK}/device:GPU:1"
NOTHING = Before({}, {}, ())
#: One call, of 1 µs.
CALLS = [(START_NS + 1000, START_NS + 2000)]


def trace(*ops: Op, **lines: str) -> Trace:
    return Trace(ops, (), find_places=lambda: {name.replace("__", "/"): (line,) for name, line in lines.items()})


def op(name: str, role: Role = "forward", *inputs: str, forward: str | None = None) -> Op:
    return Op(name, "MatMul", "MatMul", DeviceName.parse(GPU), None, role, forward, inputs=inputs)


class Allocator:
    """Writes down what an allocator with this much in use does."""

    def __init__(self, in_use: int = 0, name: str = "GPU_0_bfc") -> None:
        self.in_use, self.name = in_use, name
        self.events: list[Made] = []
        self.sizes: dict[int, int] = {}

    def gives(self, at: int, address: int, size: int, op: str, region: str = "output") -> Allocator:
        given = -(-size // 256) * 256
        self.in_use, self.sizes[address] = self.in_use + given, given
        return self._write("MemoryAllocation", at, address, size, given, {"tf_op": op, "region_type": region})

    def takes(self, at: int, address: int, size: int = 0) -> Allocator:
        given = self.sizes.pop(address, size)
        self.in_use -= given
        return self._write("MemoryDeallocation", at, address, given, given, {})

    def _write(self, name: str, at: int, address: int, size: int, given: int, more: dict[str, object]) -> Allocator:
        stats = {"allocator_name": self.name, "addr": address, "requested_bytes": size, **more}
        kept = {"allocation_bytes": given, "bytes_allocated": self.in_use, "bytes_available": 1 << 20}
        self.events.append((name, at, 0, stats if self.name == "cpu" else stats | kept))
        return self

    @property
    def capture(self) -> Capture:
        return capture_of(space({"/host:CPU": {"tf_Compute/1": self.events}}), TASK, "made")


def course(
    allocator: Allocator, known: Trace, before: Before = NOTHING, devices: Sequence[str] = (GPU,)
) -> dict[str, Course]:
    found, _ = courses_of([allocator.capture], CALLS, devices, before, dict, Labels(known, before.layers), TASK)
    return {each.device: each for each in found}


FORWARD, BACKWARD = op("step/first/MatMul"), op("step/g/MatMul", "gradient", forward="step/first/MatMul")


def test_a_peak_in_the_backward_pass_has_the_activations_that_wait_for_it() -> None:
    known = trace(FORWARD, BACKWARD, step__first__MatMul="model.py:3", step__g__MatMul="model.py:9")
    made = Allocator().gives(1100, 1, 1000, "first/MatMul").gives(1500, 2, 3000, "g/MatMul")
    found = course(made.takes(1600, 1).takes(1700, 2), known)[GPU]
    assert (found.call, found.peak_bytes, found.peak_at_ns) == (1, 1024 + 3072, 500)
    assert [(each.kind, each.layer, each.line, each.size_bytes) for each in found.alive] == [
        ("gradients", "first", "model.py:9", 3072),
        ("activations", "first", "model.py:3", 1024),
    ]
    assert found.rounding_bytes == 24 + 72
    assert found.share_with_line() == 1.0
    assert [sum(held) for held in found.held_bytes] == [0, 1024, 4096, 3072, 0]
    # And where the forward pass needs more, the peak is there.
    made = Allocator().gives(1100, 1, 3072, "first/MatMul").takes(1400, 1).gives(1500, 2, 1024, "g/MatMul")
    assert course(made, known)[GPU].bytes_by_kind() == {"activations": 3072}


def test_what_works_on_gradients_and_what_an_op_needs_for_itself_is_temporary() -> None:
    update = op("step/update", "forward", "step/g/MatMul")
    made = Allocator().gives(1100, 1, 256, "update").gives(1200, 2, 512, "first/MatMul", "temp")
    assert course(made, trace(FORWARD, BACKWARD, update))[GPU].bytes_by_kind() == {"temporaries": 768}


def test_what_no_object_holds_is_unknown_and_has_no_line() -> None:
    weights, slots = Label("variables", "first", "model.py:1"), Label("slots", "first", "model.py:2")
    before = Before({}, {GPU: [(weights, 512), (slots, 1024)]}, ())
    known = trace(FORWARD, step__first__MatMul="model.py:3")
    found = course(Allocator(in_use=2560).gives(1100, 1, 1024, "first/MatMul"), known, before)[GPU]
    assert found.bytes_by_kind() == {"variables": 512, "slots": 1024, "activations": 1024, "unknown": 1024}
    assert found.share_with_line() == pytest.approx(2560 / 3584)
    found = course(Allocator(in_use=1536).gives(1100, 1, 1024, "first/MatMul"), known, before)[GPU]
    assert found.share_with_line() == 1.0


def test_tensors_that_share_a_buffer_are_not_counted_twice() -> None:
    shown = Label("inputs", "", "model.py:1")
    before = Before({}, {GPU: [(shown, 512), (shown, 512)]}, ())
    found = course(Allocator(in_use=512).gives(1100, 1, 256, "first/MatMul"), trace(FORWARD), before)[GPU]
    assert found.bytes_by_kind() == {"inputs": 512, "activations": 256}


@pytest.mark.parametrize("stays", [True, False])
def test_a_buffer_that_a_variable_gets_becomes_the_variables_and_others_do_not(stays: bool) -> None:
    weights, rows = Label("variables", "first", "model.py:1"), Label("inputs", "", "model.py:2")
    before = Before({}, {GPU: [(rows, 512), (weights, 512)]}, ())
    made = Allocator(in_use=1024).gives(1100, 1, 512, "first/MatMul")
    if not stays:
        made.takes(1150, 1)
    # What was there is freed: the variable's, or where nothing takes its place a tensor.
    made.takes(1200, 7, 512).gives(1300, 2, 2048, "first/MatMul")
    found = course(made.takes(1400, 2), trace(FORWARD), before)[GPU].bytes_by_kind()
    left = {"inputs": 512} if stays else {}
    assert found == {"variables": 512, **left, "activations": 2048}


def test_each_logical_cpu_has_the_buffers_of_its_ops_and_a_device_without_any_has_none() -> None:
    cpus = [f"{TASK}/device:CPU:{index}" for index in range(3)]
    ops = [
        Op(f"step/{name}", "Mul", "Mul", DeviceName.parse(cpus[at]), None, "forward") for at, name in enumerate("ab")
    ]
    before = Before({9: (Label("variables", "", "model.py:1", cpus[1]), 100)}, {}, ())
    made = Allocator(name="cpu").gives(1100, 1, 1000, "a").gives(1200, 2, 500, "b").takes(1300, 1)
    found = course(made, trace(*ops), before, cpus)
    assert {name[-1]: each.peak_bytes for name, each in found.items()} == {"0": 1000, "1": 600}
    assert all("the CPUs share one memory" in each.source for each in found.values())


def test_devices_of_other_processes_are_named_as_unknown() -> None:
    there = "/job:core/replica:0/task:1/device:CPU:0"
    found, unknown = courses_of([Allocator().capture], CALLS, [there, GPU], NOTHING, dict, Labels(trace()), TASK)
    assert found == ()
    assert unknown == "memory of core/1/CPU:0: unknown, because it belongs to another process"


def test_a_copy_from_another_device_is_what_was_copied() -> None:
    sent = Transfer(DeviceName.parse(OTHER), DeviceName.parse(GPU), "step/first/MatMul", 1000)
    known = Trace((FORWARD,), (sent,), find_places=lambda: {"step/first/MatMul": ("model.py:3",)})
    found = course(Allocator().gives(1100, 1, 1000, "SameWorkerRecvDone", "dynamic"), known)[GPU]
    assert [(each.kind, each.line) for each in found.alive] == [("activations", "model.py:3")]
    found = course(Allocator().gives(1100, 1, 999, "SameWorkerRecvDone", "dynamic"), known)[GPU]
    assert [(each.kind, each.line) for each in found.alive] == [("temporaries", "")]


def test_scopes_are_those_of_layers_whatever_number_keras_gives_them() -> None:
    layers = ["dense", "dense_1", "flatten"]
    assert layers_of_scopes(["dense_1", "dense_1_1", "flatten_1", "Relu"], layers) == {
        "dense_1": "dense",
        "dense_1_1": "dense_1",
        "flatten_1": "flatten",
    }
    assert layers_of_scopes(["dense", "dense_1"], layers) == {"dense": "dense", "dense_1": "dense_1"}
