"""An error of the program is one line that says what is wrong, without TensorFlow's lists of devices and kernels."""

from __future__ import annotations

import inspect
import tempfile

import pytest
import tensorflow as tf

import harness
from harness.judgement.error_line import error_line, place_in_message, place_of_raised

pytest_plugins = ["four_devices"]

_JOB = "/job:localhost/replica:0/task:0/device"
_IN_GRAPH = f"""{{{{function_node step}}}} Cannot assign a device for operation while/pfor/body/SetItem: \
Could not satisfy explicit device specification '{_JOB}:GPU:1' because no supported kernel for GPU devices is available.
Colocation Debug Info:
Colocation group had the following types and supported devices:
Root Member(assigned_device_name_index_=-1 requested_device_name_='{_JOB}:GPU:1' supported_device_types_=[CPU])
TensorListSetItem: CPU
Identity: GPU CPU

Op: TensorListSetItem
Node attrs: element_dtype=DT_VARIANT
Registered kernels:
  device='GPU'; element_dtype in [DT_FLOAT]
  device='CPU'
 [[while/pfor/body/SetItem]] [Op:__inference_step_3152]"""
_IN_EAGER = (
    "Could not satisfy device specification '{wanted}'. enable_soft_placement=0. Supported device types [{types}]. All "
    f"available devices [{_JOB}:GPU:0, {_JOB}:GPU:1, {_JOB}:CPU:0]. [Op:AsString] name: "
)
_IN_GRAPH_ALONE = (
    "Cannot assign a device for operation add: was explicitly assigned to /device:GPU:0 but available devices are "
    "[ {devices} ]. Make sure the device specification refers to a valid device. [[add]] [Op:__inference_step_1255]"
)


@pytest.mark.parametrize(
    ("message", "op", "vectorised"),
    [
        (
            _IN_GRAPH,
            "TensorListSetItem (while/pfor/body/SetItem)",
            "take the derivative with experimental_use_pfor=False, ",
        ),
        (_IN_GRAPH.replace("/pfor/", "/"), "TensorListSetItem (while/body/SetItem)", ""),
        (_IN_EAGER.format(wanted=f"{_JOB}:GPU:1", types="CPU"), "AsString", ""),
    ],
)
def test_an_op_without_a_gpu_kernel_is_named_with_what_to_do(message: str, op: str, vectorised: str) -> None:
    assert error_line(ValueError(message)) == (
        f"ValueError: TensorFlow has no kernel on GPU:1 for {op} and its types; {vectorised}run the op in a CPU "
        "scope, or allow soft placement with tf.config.set_soft_device_placement(True)"
    )


@pytest.mark.parametrize(("wanted", "types"), [("CPU:90", "CPU"), ("GPU:1", "GPU, CPU")])
def test_a_device_that_tensorflow_cannot_use_is_another_error(wanted: str, types: str) -> None:
    message = _IN_EAGER.format(wanted=f"{_JOB}:{wanted}", types=types)
    assert error_line(ValueError(message)) == f"ValueError: {message.strip()}"


@pytest.mark.parametrize(
    ("message", "spec"),
    [
        (_IN_EAGER.format(wanted=f"{_JOB}:GPU:3", types="CPU"), "softgpu:4"),
        (_IN_EAGER.format(wanted=f"{_JOB}:GPU:10", types="GPU, CPU"), "softgpu:11"),
        (
            _IN_GRAPH_ALONE.format(devices=f"{_JOB}:CPU:0, {_JOB}:CPU:1"),
            "softgpu:2",
        ),
    ],
)
def test_a_scope_of_a_gpu_that_is_absent_has_its_remedy(message: str, spec: str) -> None:
    line = error_line(ValueError(message))
    assert line.startswith("ValueError: a scope names GPU:")
    assert f"which this process does not have; give it software GPUs with --harness-devices={spec} or " in line


def test_an_error_is_told_once(devices: harness.Devices) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/GPU:1"):
            return x + 1.0

    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        found = harness.verify(step, lambda x: x + 1.0, {"x": tf.ones((4, 2))}, devices=devices)
    finally:
        tf.config.set_soft_device_placement(before)
    assert found.findings[0].kind == "error"
    assert str(found).count("a scope names GPU:1") == 1, found


def test_a_long_text_keeps_its_start_and_its_end() -> None:
    assert error_line(ValueError("begin " + 900 * "x" + " end")).startswith("ValueError: begin xxx")
    assert error_line(ValueError("begin " + 900 * "x" + " end")).endswith("xxx end")
    assert len(error_line(ValueError(900 * "x"))) < 650


_FRAMES = 'Detected at node call defined at (most recent call last):\n  File "/project/train.py", line 8, in step\n\n'
_ROOTS = (
    "2 root error(s) found.\n  (0) INVALID_ARGUMENT:  bad input w\n see the manual\n\t [[{{node call}}]]\n"
    "\t [[unknown/_12]]\n  (1) INVALID_ARGUMENT:  bad input w\n\t [[{{node call}}]]\n0 successful operations.\n"
    "0 derived errors ignored. [Op:__inference_step_38]"
)


@pytest.mark.parametrize(
    ("message", "text", "place"),
    [
        (f"Graph execution error:\n\n{_FRAMES}{_FRAMES}{_ROOTS}", "bad input w see the manual", "train.py:8"),
        (
            f"Graph execution error:\n\n{_FRAMES}bad input w\n\t [[{{{{node call}}}}]] [Op:f]",
            "bad input w",
            "train.py:8",
        ),
        (
            f"""in user code:\n\n    File "/project/train.py", line 5, in step  *\n        y = x + z\n
    File "{tempfile.__file__}", line 9, in add\n\n    ValueError: bad\n    input w""",
            "bad input w",
            "train.py:5",
        ),
        ("bad input w", "bad input w", None),
    ],
)
def test_an_error_in_a_graph_is_the_first_ops_message_and_the_users_line(
    message: str, text: str, place: str | None
) -> None:
    assert error_line(ValueError(message)) == f"ValueError: {text}"
    assert place_in_message(ValueError(message)) == place


@pytest.mark.usefixtures("four_cpus")
def test_the_line_of_an_op_without_a_kernel_is_that_which_made_it_in_its_graph() -> None:
    @tf.function  # type: ignore[untyped-decorator]
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x, name="no_kernel")  # made here

    graph = step.get_concrete_function(tf.TensorSpec([], tf.float32))
    graph(tf.constant(1.0))
    name = graph.function_def.signature.name
    message = _IN_GRAPH.replace("while/pfor/body/SetItem", "no_kernel").replace("__inference_step_3152", name)
    source, start = inspect.getsourcelines(step.python_function)
    line = start + next(number for number, text in enumerate(source) if "# made here" in text)
    assert place_of_raised(ValueError(message)) == f"tests/judgement/test_error_line.py:{line}"
    assert place_of_raised(ValueError(message.replace("no_kernel", "another"))) is None
    assert place_of_raised(ValueError("no op")) is None


@pytest.mark.parametrize("graph", [False, True])
def test_a_variable_of_another_device_is_refused_by_xla_and_its_twin_is_not(
    four_cpus: harness.Devices, graph: bool
) -> None:
    """Keras compiles convolutions in groups with XLA, and writes its errors in bold type."""
    elsewhere, host = four_cpus[1].name, "CPU:0"
    layers = {}
    for place in (elsewhere, host):
        with tf.device(place):
            layers[place] = tf.keras.layers.Conv2D(4, 1, groups=2)
            layers[place].build((None, 3, 3, 4))

    def run(place: str) -> None:
        with tf.device(host):
            layers[place](tf.ones([2, 3, 3, 4]))

    called = tf.function(run) if graph else run
    called(host)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        called(elsewhere)
    line = error_line(raised.value)
    assert line.startswith("InvalidArgumentError: XLA cannot read a variable of another device: conv2d"), line
    made = ":".join(elsewhere.split(":")[-2:])
    assert f"/kernel is on {made}, but the compiled function runs on CPU:0; create the variable on CPU:0" in line
    assert error_line(ValueError("\x1b[1mno\x1b[0m rows")) == "ValueError: no rows"


def test_the_ops_that_cannot_be_on_one_device_are_named_and_a_loop_in_a_function_has_its_remedy() -> None:
    message = (
        "Cannot colocate nodes {{colocation_node call/while}} and {{colocation_node call/add}}: Cannot merge devices "
        f"with incompatible ids: '{_JOB}:CPU:0' and '{_JOB}:CPU:1'\n [[{{{{function_node %s}}}}{{{{node while}}}}]]"
    )
    other = error_line(ValueError(message % "step"))
    assert other.startswith("ValueError: Cannot colocate nodes call/while and call/add: Cannot merge devices"), other
    loop = error_line(ValueError(message % "__forward_run_218"))
    assert "TensorFlow cannot take the gradient of a tf.function whose loop" in loop, loop
    assert loop.endswith("use harness.colocate_gradients(), or read the variable before the loop"), loop
