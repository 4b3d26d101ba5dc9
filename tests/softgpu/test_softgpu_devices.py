"""Software GPUs as devices: their kernels, their memory, and what they refuse. Each test is a process of its own."""

from __future__ import annotations

import ctypes
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from softgpu_programs import assert_close, refusal, start

from harness.softgpu.compiler import NAMES

#: The first test on a machine compiles the library, which takes 20 s of a core.
_TIMEOUT_S = 900
_WITHOUT = not any(shutil.which(name) for name in NAMES)
pytestmark = pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")


def _page() -> str:
    return (Path(__file__).parents[2] / "docs" / "guides" / "software-gpus.md").read_text(encoding="utf-8")


def kernels_and_memory() -> None:
    tf = start("softgpu:2x256")
    import harness
    from harness.errors import DevicesAlreadyConfigured

    names = [device.name for device in tf.config.list_physical_devices("GPU")]
    assert names == ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0]).get("device_name")
    different = _differences(tf)
    _host_arguments(tf, set(different["kept"]))
    with tf.device("GPU:1"):
        _computes(tf)
        _variables(tf)
        _memory(tf)
        # There is no kernel for strings on a GPU.
        message = refusal(lambda: tf.strings.length("text"), tf.errors.InvalidArgumentError)
        assert "Could not satisfy device specification" in message, message
        message = refusal(lambda: tf.raw_ops.FFTND(input=tf.ones(4, tf.complex64), fft_length=[4], axes=[0]), Exception)
        assert "a software GPU cannot run FFTND, which a real GPU can" in message, message
    _profile(tf)
    for kind, name in (("missing", "missing ops"), ("type", "missing types"), ("own", "own ops")):
        _, listed, _ = re.split(f"<!-- .*{name} -->", _page())
        assert tuple(re.findall("`(.+?)`", listed)) == different[kind]
    tf.config.set_soft_device_placement(True)
    with tf.device("GPU:1"):
        assert int(tf.strings.length("text")) == 4
    # The same again is no change; another set would have TensorFlow abort.
    assert len(harness.configure("softgpu:2x256")) == 2
    for other in ("softgpu:3", "softgpu:2", "cpu:2"):
        assert "softgpu:2x256" in refusal(lambda spec=other: harness.configure(spec), DevicesAlreadyConfigured)


def _differences(tf: Any) -> dict[str, tuple[str, ...]]:
    """How kernels differ from those of a GPU: each kind of ``differences.h``, and its ops, some with a type."""
    from harness.softgpu.library import build_library, open_library

    library = open_library(build_library(tf))
    library.harness_softgpu_differences.restype = ctypes.c_char_p
    kinds: dict[str, tuple[str, ...]] = {}
    for line in library.harness_softgpu_differences().decode().splitlines():
        kind, _, what = line.partition(" ")
        kinds[kind] = (*kinds.get(kind, ()), what)
    return kinds


def _host_arguments(tf: Any, kept: set[str]) -> None:
    """Software GPUs have the kernels of the CUDA build, no others: the same types and arguments in host memory."""
    from tensorflow.python.framework import kernels  # the registry has no public door

    def definitions(kind: str, priorities: range) -> set[tuple[Any, ...]]:
        return {
            (
                kernel.op,
                kernel.label,
                tuple(sorted(kernel.host_memory_arg)),
                tuple(sorted((each.name, tuple(each.allowed_values.list.type)) for each in kernel.constraint)),
            )
            for kernel in kernels.get_all_registered_kernels().kernel
            if kernel.device_type == kind and kernel.priority in priorities
        }

    ours, real = definitions("GPU", range(7, 8)), definitions("GPU", range(7))
    assert len(ours) > 3000, len(ours)
    # Those of collectives are TensorFlow's for devices of any type.
    collectives = {each for each in definitions("DEFAULT", range(7)) if each[0].startswith("Collective")}
    assert ours - real <= collectives
    # And the other way round: what has no kernel of ours runs with TensorFlow's.
    assert {each[0] for each in real - ours} == kept
    assert kept.isdisjoint(each[0] for each in ours)
    assert {"Identity", "Const", "Reshape", "Switch"} <= kept
    assert not kept & {"MatMul", "AssignVariableOp", "Conv2D"}


def _profile(tf: Any) -> None:
    """The profiler has no plane for these GPUs: their ops are events of the threads that they run on."""
    import harness
    from harness.speed.timeline.profiling import profile_calls

    @tf.function  # type: ignore[untyped-decorator]
    def program() -> Any:
        with tf.device("GPU:0"):
            one = tf.matmul(matrix, matrix)
        with tf.device("GPU:1"):
            return one, tf.nn.conv2d(images, images[:3, :3], 1, "SAME")

    matrix, images = tf.random.normal((128, 128)), tf.random.normal((4, 4, 4, 4))
    with tempfile.TemporaryDirectory() as folder:
        found = profile_calls(program, devices=harness.configure("softgpu:2x256"), calls=3, folder=Path(folder))
    where = {(span.name, span.device and span.device[-5:]) for span in found.spans}
    assert {("MatMul", "GPU:0"), ("Conv2D", "GPU:1")} <= where, where


def _computes(tf: Any) -> None:
    import numpy as np

    matrix = tf.random.normal((64, 64), seed=1)
    assert matrix.backing_device.endswith("GPU:1")
    assert_close("MatMul", matrix @ matrix, matrix.numpy() @ matrix.numpy(), 1e-3)
    # With the same kernel as on the CPU, which may be oneDNN's: as fast, and equal to the last bit.
    for shape in ((200, 1000), (2, 300, 700)):
        rows = tf.random.normal(shape, seed=2)
        product = tf.matmul(rows, rows, transpose_b=True)
        with tf.device("CPU:0"):
            assert np.array_equal(product, tf.matmul(rows, rows, transpose_b=True))

    @tf.function  # type: ignore[untyped-decorator]
    def loop(x: Any) -> Any:
        total = tf.zeros(())
        while tf.reduce_sum(x) > 1.0:
            x, total = x / 2.0, total + tf.reduce_max(x)
        return total, tf.shape(x)

    total, shape = loop(tf.ones((4,)))
    assert float(total) == 1.5
    assert np.array_equal(shape, [4])


def _variables(tf: Any) -> None:
    variable = tf.Variable(tf.ones((4, 2)))
    variable.assign_add(tf.ones((4, 2)))
    variable.scatter_update(tf.IndexedSlices(tf.fill((1, 2), 7.0), tf.constant([1])))
    # A sparse update makes reads copy, which a GPU does with a kernel of CUDA's.
    assert variable.read_value().numpy()[:, 0].tolist() == [2.0, 7.0, 2.0, 2.0]
    assert variable.read_value().backing_device.endswith("GPU:1")


def _memory(tf: Any) -> None:
    import numpy as np

    from harness._tensorflow import memory_limits

    limits = {name[-5:]: size for name, size in memory_limits().items() if "GPU" in name}
    assert limits == {"GPU:0": 256 << 20, "GPU:1": 256 << 20}, limits
    before = tf.config.experimental.get_memory_info("GPU:1")["current"]
    held = tf.ones((64, 1024, 1024), tf.uint8)
    taken = tf.config.experimental.get_memory_info("GPU:1")["current"] - before
    assert 64 << 20 <= taken < 65 << 20, taken
    assert tf.config.experimental.get_memory_info("GPU:0")["current"] < 1 << 20
    message = refusal(lambda: tf.zeros((256, 1024, 1024), tf.uint8), tf.errors.ResourceExhaustedError)
    assert "OOM" in message
    assert "GPU:1" in message
    del held
    assert tf.zeros((128, 1024, 1024), tf.uint8).backing_device.endswith("GPU:1")
    # Memory that nobody has written is no zeros.
    with tf.device("GPU:0"):
        untouched = tf.raw_ops.Empty(shape=[8 << 20], dtype=tf.float32)
    assert np.isnan(untouched.numpy()).all()


def test_kernels_memory_and_refusals_are_those_of_a_gpu(fresh_process: Any) -> None:
    fresh_process(kernels_and_memory, timeout_s=_TIMEOUT_S)


def split_and_hidden() -> None:
    import tensorflow as tf

    from harness._tensorflow import memory_limits
    from harness.softgpu import SoftwareGpus, load

    load(tf, SoftwareGpus(3, 64))
    first, _, third = tf.config.list_physical_devices("GPU")
    parts = [tf.config.LogicalDeviceConfiguration(memory_limit=size) for size in (16, 32)]
    tf.config.set_logical_device_configuration(first, parts)
    tf.config.set_visible_devices([first, third], "GPU")
    assert len(tf.config.list_logical_devices("GPU")) == 3
    limits = {name[-5:]: size >> 20 for name, size in memory_limits().items() if "GPU" in name}
    assert limits == {"GPU:0": 16, "GPU:1": 32, "GPU:2": 64}, limits

    def use(at: int, size: int) -> None:
        with tf.device(f"GPU:{at}"):
            refusal(lambda: tf.zeros((size + 1, 1024, 1024), tf.uint8), tf.errors.ResourceExhaustedError)
            assert float(tf.reduce_sum(tf.ones((8, 8)))) == 64.0

    # At once: TensorFlow waits 10 s for memory before it says that there is none, for parts of one card in turn.
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(use, 1, 32), pool.submit(use, 2, 64)]:
            done.result()


def test_a_card_can_be_split_and_another_one_hidden(fresh_process: Any) -> None:
    fresh_process(split_and_hidden, timeout_s=_TIMEOUT_S)


def a_split_spec() -> None:
    import tensorflow as tf

    import harness
    from harness._tensorflow import memory_limits
    from harness.softgpu import SoftwareGpus, load

    load(tf, SoftwareGpus(1, 64))
    devices = harness.configure("gpu:2x24")
    assert [device.parsed.short for device in devices] == ["GPU:0", "GPU:1"]
    limits = {name[-5:]: size >> 20 for name, size in memory_limits().items() if "GPU" in name}
    assert limits == {"GPU:0": 24, "GPU:1": 24}, limits
    with tf.device("GPU:1"):
        assert tf.ones((8, 8)).backing_device.endswith("GPU:1")


def test_logical_gpus_can_be_parts_of_a_software_gpu(fresh_process: Any) -> None:
    fresh_process(a_split_spec, timeout_s=_TIMEOUT_S)


def many() -> None:
    tf = start("softgpu:64x32")
    gpus = tf.config.list_logical_devices("GPU")
    assert len(gpus) == 64
    with tf.device("GPU:63"):
        total = tf.reduce_sum(tf.ones((8, 8)))
    assert total.backing_device.endswith("GPU:63")
    assert float(total) == 64.0


def test_there_can_be_64_devices(fresh_process: Any) -> None:
    fresh_process(many, timeout_s=_TIMEOUT_S)


def _mapped_mib() -> float:
    """What all software GPUs have mapped: the pieces of the file that their memory is made of."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    ends = [line.split()[0].split("-") for line in lines if "software-gpu-garbage" in line]
    return sum(int(end, 16) - int(start, 16) for start, end in ends) / 2**20


def memory_growth(growth: bool) -> None:
    import tensorflow as tf

    from harness.softgpu import SoftwareGpus, load

    load(tf, SoftwareGpus(2, 256))
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, growth)
    with tf.device("GPU:1"):
        held = [tf.ones(2**18)]
        assert _mapped_mib() < 32 if growth else _mapped_mib() > 250
        held.append(tf.ones(2**24))
        assert 64 < _mapped_mib() < 256 if growth else _mapped_mib() > 250
        refusal(lambda: held.append(tf.ones(2**26)), tf.errors.ResourceExhaustedError)
    assert _mapped_mib() < 260, "the limit holds with growth too, and GPU:0 has taken nothing"


def growing() -> None:
    memory_growth(True)


def not_growing() -> None:
    memory_growth(False)


@pytest.mark.parametrize("program", [growing, not_growing])
def test_memory_growth_takes_memory_as_it_is_needed_up_to_the_limit(fresh_process: Any, program: Any) -> None:
    fresh_process(program, timeout_s=_TIMEOUT_S)


def started_before() -> None:
    import tensorflow as tf

    import harness
    from harness.errors import DevicesAlreadyConfigured
    from harness.softgpu import SoftwareGpus, load, loaded

    tf.constant(1)
    assert "not by the harness" in refusal(lambda: harness.configure("softgpu:2"), DevicesAlreadyConfigured)
    assert "without software GPUs" in refusal(lambda: load(tf, SoftwareGpus(2, 64)), DevicesAlreadyConfigured)
    assert loaded() is None
    assert tf.config.list_physical_devices("GPU") == []


def test_a_runtime_that_has_started_gets_no_software_gpus(fresh_process: Any) -> None:
    fresh_process(started_before, timeout_s=_TIMEOUT_S)


_NO_SUCH_OP = """
schema_version = 1
[cards]
count = 2
model = "NVIDIA H100 80GB HBM3"
[[fault]]
kind = "bit-flip"
card = 1
op = "MatMull"
"""


#: Ops in which no fault can act, and why.
_IDLE = {
    '"Identity"': "Identity computes nothing in a GPU's memory",
    '"AssignVariableOp"': "AssignVariableOp has no output in the memory of a GPU",
    '"AsString"': "AsString has no GPU kernel",
    '"FFTND"': "a software GPU cannot run FFTND",
    '"MatMul"\ndtype = "int8"': "MatMul has no output in the memory of a GPU with the type int8",
}


def a_fault_in_no_op() -> None:
    import harness
    from harness.errors import InvalidDescription

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "machine.toml")
        path.write_text(_NO_SUCH_OP, encoding="utf-8")
        message = refusal(lambda: harness.configure(f"softgpu:{path}"), InvalidDescription)
        assert "TensorFlow has no op MatMull" in message, message
        assert "\n" not in message, message
        for op, why in _IDLE.items():
            path.write_text(_NO_SUCH_OP.replace('"MatMull"', op), encoding="utf-8")
            message = refusal(lambda: harness.configure(f"softgpu:{path}"), InvalidDescription)
            assert why in message, message
            assert "\n" not in message, message
        # The process has no software GPUs yet, so that the same file without the mistake is no second configuration.
        path.write_text(_NO_SUCH_OP.replace("MatMull", "MatMul"), encoding="utf-8")
        assert len(harness.configure(f"softgpu:{path}")) == 2
        other = Path(folder, "other.toml")
        other.write_text(_NO_SUCH_OP.replace("count = 2", "count = 4").replace("MatMull", "MatMul"), encoding="utf-8")
        message = refusal(lambda: harness.configure(f"softgpu:{other}"), harness.DevicesAlreadyConfigured)
        assert "\n" not in message, message


def test_a_fault_in_an_op_that_computes_nothing_on_a_gpu_is_refused_in_one_line(fresh_process: Any) -> None:
    fresh_process(a_fault_in_no_op, timeout_s=_TIMEOUT_S)


def a_profile_of_a_described_machine() -> None:
    import harness

    with tempfile.TemporaryDirectory() as folder:
        machine = _NO_SUCH_OP.replace("MatMull", "MatMul").replace(
            "[[fault]]", "software_mib = 64\n[[fault]]\nprobability = 1.0\nrun = 64"
        )
        Path(folder, "machine.toml").write_text(machine, encoding="utf-8")
        profile = Path(folder, "two-cards.toml")
        profile.write_text('schema_version = 1\nspec = "softgpu:machine.toml"\n', encoding="utf-8")
        devices = harness.configure(profile)
    assert [(device.parsed.short, device.kind) for device in devices] == [
        ("GPU:0", "software-gpu"),
        ("GPU:1", "software-gpu"),
    ]
    import tensorflow as tf

    wrong = []
    for device in devices:
        with tf.device(device.name):
            wrong.append(float(tf.reduce_max(tf.abs(tf.ones((8, 8)) @ tf.ones((8, 8)) - 8))))
    assert wrong[0] == 0
    assert wrong[1] > 0


def test_a_profile_of_a_described_machine_runs_on_software_gpus_with_its_faults(fresh_process: Any) -> None:
    fresh_process(a_profile_of_a_described_machine, timeout_s=_TIMEOUT_S)


def test_the_guides_test_passes_and_fails_where_an_op_is_on_the_wrong_gpu_or_has_no_kernel(
    pytester: pytest.Pytester, inner_pytest: Any
) -> None:
    _, _, rest = _page().partition('```python title="test_two_gpus.py"\n')
    right, _, _ = rest.partition("```")
    pytester.makepyfile(
        test_right=right,
        test_wrong_gpu=right.replace('tf.device("/GPU:1")', 'tf.device("/GPU:0")'),
        test_no_kernel=right.replace("tf.tanh", "tf.strings.as_string"),
    )
    result = inner_pytest("--harness-devices=softgpu:2", "--harness-require", "-rA", real=True)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*2 software GPUs of 2,048 MiB each, as requested; no real GPU is tested*"])
    result.stdout.fnmatch_lines(["*no supported kernel for GPU devices is available*"])
    result.stdout.fnmatch_lines_random(["PASSED *test_right*", "FAILED *test_wrong_gpu*", "FAILED *test_no_kernel*"])
