"""Facts that depend on the version of TensorFlow, or of the CUDA that it is built with, in one place.

To support another version, change this file, then ``_tensorflow.py`` where a private interface has changed, and the
versions in ``pyproject.toml`` and ``tox.ini``. ``tests/test_tensorflow_version.py`` holds the four together.
"""

from __future__ import annotations

import re

#: The oldest and the newest version that the tests run with.
OLDEST, NEWEST = "2.19", "2.21"
#: Both as one text, for messages.
SUPPORTED = f"{OLDEST} to {NEWEST}"
#: The first version after :data:`NEWEST`, and that of Python after the newest supported one.
TOO_NEW = "2.22"
OLDEST_PYTHON, TOO_NEW_PYTHON = "3.10", "3.14"
#: The oldest NumPy that these versions work with (their packages' metadata).
OLDEST_NUMPY = "1.26"

#: The library of the C interface in TensorFlow's Python package.
C_LIBRARY = "libtensorflow_cc.so.2"

#: CPU features, as Linux names them, with which TensorFlow switches oneDNN on by default. From DefaultOneDnnPolicy in
#: TensorFlow's tensorflow/core/util/port.cc. Other x86 CPUs, such as those with AVX2 alone, run without oneDNN.
ONEDNN_FEATURES = frozenset({"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"})
#: Linux's CPU part number of Arm's Neoverse V1, the one Arm core with oneDNN on by default (same source).
ONEDNN_ARM_PART = "0xd40"

#: The GPU libraries that TensorFlow opens by name (xla/tsl/platform: the dso_loader, and the stubs of
#: third_party/xla/xla/tsl/cuda). ``{cuda}`` and ``{cudnn}`` are major versions.
GPU_LIBRARIES = (
    "libcudart.so.{cuda}",
    "libcublas.so.{cuda}",
    "libcublasLt.so.{cuda}",
    "libcufft.so.{cufft}",
    "libcusolver.so.{cusolver}",
    "libcusparse.so.{cuda}",
    "libcudnn.so.{cudnn}",
    "libnccl.so.2",
)

#: By major version of CUDA, the first driver for Linux with which programs built for any of its minor versions run
#: (NVIDIA, CUDA Compatibility, "Minor Version Compatibility", table 1, and CUDA Toolkit release notes, table 2).
MINIMUM_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
#: By CUDA version, the driver that comes with it, from which on PTX made by it can be compiled: an older one of the
#: same major version runs machine code alone (NVIDIA, CUDA Toolkit release notes, table 3; CUDA Compatibility,
#: "Application Considerations for Minor Version Compatibility").
TOOLKIT_DRIVERS = {
    "12.0": "525.60.13",
    "12.1": "530.30.02",
    "12.2": "535.54.03",
    "12.3": "545.23.06",
    "12.4": "550.54.14",
    "12.5": "555.42.02",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
}

#: Names in TensorFlow's profile. Planes:
ENVIRONMENT_PLANE, HOST_PLANE, GPU_PLANE = "Task Environment", "/host:CPU", r"^/device:GPU:\d+$"
#: Lines of a GPU's plane that are streams. Others ("Steps", "XLA Ops") are derived and would count the time again.
STREAM_LINE = r"^Stream #\d+"
#: Kernels of NCCL, before and after its version 2.19, and copies.
NCCL_KERNEL, COPY = r"^nccl(Dev)?Kernel", r"^Memcpy"
#: Events of the host: the executor of one device's part of a function, an asynchronous op, and eager calls.
PROCESS_EVENT = "ExecutorState::Process"
ASYNC_START, ASYNC_DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
EAGER_CALL, EAGER_KERNEL, FUNCTION_RUN = "EagerExecute", "EagerKernelExecute", "FunctionRun"
#: What an allocator does, and the statistics that tell the buffer, its size, and which allocator it is.
ALLOCATION, DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
BUFFER_ADDRESS, BUFFER_BYTES, ALLOCATOR_NAME = "addr", "requested_bytes", "allocator_name"
#: The op that a buffer is for, and what it is for it: "output", "temp" or other. And what a GPU's allocator adds: the
#: size that it gave out, how much is in use, and how much of its limit is not.
BUFFER_OP, BUFFER_REGION = "tf_op", "region_type"
GIVEN_BYTES, IN_USE_BYTES, FREE_BYTES = "allocation_bytes", "bytes_allocated", "bytes_available"
#: The allocator of a GPU or pluggable device, with the number of the device.
DEVICE_ALLOCATOR = r"^(?:GPU|PluggableDevice)_(\d+)_bfc$"
#: What stands for the op where a tensor arrives from another device.
ARRIVAL = "SameWorkerRecvDone"
#: Threads of tf.data, and the event of a function that it runs.
PIPELINE_THREAD, CAPTURED_FUNCTION = "tf_data", "InstantiatedCapturedFunction::"
#: The event of each request to a server. It looks like an op.
SERVICE_EVENT = "EagerService"
#: Ops that run nothing of the program's: they make a tensor of a Python value, and wait for a device.
NO_OPS = ("_EagerConst", "SyncDevice")
#: Ops that copy between devices.
SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")

#: The parameters, in their order, of each private function that ``_tensorflow.py`` uses.
PRIVATE_SIGNATURES = {
    "backprop._gradient_function": "op_name attr_tuple num_inputs inputs outputs out_grads skip_input_indices "
    "forward_pass_name_scope",
    "op_callbacks.invoke_op_callbacks": "op_type inputs attrs outputs op_name graph",
    "op_callbacks.should_invoke_op_callbacks": "",
    "imperative_grad.imperative_grad": "tape target sources output_gradients sources_raw unconnected_gradients",
    "tape.push_new_tape": "persistent watch_accessed_variables",
    "tape.push_tape": "tape",
    "tape.pop_tape": "tape",
    "record.record_operation": "op_type output_tensors input_tensors backward_function forward_function",
    "record.record_operation_backprop_only": "op_type output_tensors input_tensors backward_function",
    "execute.record_gradient": "op_name inputs attrs outputs",
    "gradients_util._maybe_colocate_with": "op gradient_uid colocate_gradients_with_ops",
    "gradients_util._MultiDeviceAddN": "tensor_list gradient_uid",
    "gradients_util._AggregatedGrads": "grads op gradient_uid loop_state aggregation_method",
    "control_flow_state.ZerosLike": "op index",
    "cond._resolve_grad_inputs": "cond_graph grad_graph",
    "function_context.make_function_context": "scope_type",
    "trace._select_forward_and_backward_functions": "self args possible_gradient_type executing_eagerly",
    "rewriting.forward_backward": "self num_doutputs",
    "graph._create_op_helper": "self op compute_device",
    "graph._original_op": "self op",
    "python_function.__init__": "self func Tout is_grad_func",
    "constants.convert_to_eager_tensor": "value ctx dtype",
    "variable.sparse_read": "self indices name",
    "variable.gather_nd": "self indices name",
}

#: The fields of a profile's messages that are read.
XPLANE_FIELDS = {
    "XSpace": ("planes",),
    "XPlane": ("name", "lines", "event_metadata", "stat_metadata", "stats"),
    "XLine": ("name", "timestamp_ns", "events"),
    "XEvent": ("metadata_id", "offset_ps", "duration_ps", "stats"),
    "XStat": ("metadata_id", "ref_value", "str_value", "int64_value", "uint64_value"),
}


def untested(version: str) -> str | None:
    """Return a warning where the tests do not run with ``version`` of TensorFlow, and otherwise ``None``."""
    minor = re.match(r"(\d+)\.(\d+)", version)
    first, last = (tuple(map(int, each.split("."))) for each in (OLDEST, NEWEST))
    if minor is None or first <= (int(minor[1]), int(minor[2])) <= last:
        return None
    return (
        f"TensorFlow {version} is not among the tested versions, {SUPPORTED}; where its private interface differs, the "
        "harness raises TensorFlowInterfaceChanged"
    )
