"""The fake TensorFlow has the rules of the real one, as far as a machine without a GPU can tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

from fake_tensorflow import FakeTensorFlow

FreshProcess = Callable[..., CompletedProcess[str]]


def _transcript(tensorflow: Any) -> list[str]:
    """What a series of calls answers, or which error it raises."""
    config = tensorflow.config
    threading, experimental = config.threading, config.experimental
    cpu = config.list_physical_devices("CPU")[0]
    said: list[str] = []

    def logical(count: int) -> list[Any]:
        return [config.LogicalDeviceConfiguration() for _ in range(count)]

    def call(name: str, function: Any, *arguments: Any) -> None:
        try:
            said.append(f"{name}: {function(*arguments)}")
        except (RuntimeError, ValueError) as error:
            said.append(f"{name}: {type(error).__name__}")

    def read() -> None:
        call("intra", threading.get_intra_op_parallelism_threads)
        call("inter", threading.get_inter_op_parallelism_threads)
        call("soft", config.get_soft_device_placement)
        call("tf32", experimental.tensor_float_32_execution_enabled)
        call("logical", lambda: len(config.get_logical_device_configuration(cpu) or []))
        call("visible", lambda: [device.name for device in config.get_visible_devices()])

    def write() -> None:
        for count in (2, 3):
            call(f"logical {count}", config.set_logical_device_configuration, cpu, logical(count))
            call(f"intra {count}", threading.set_intra_op_parallelism_threads, count)
            call(f"inter {count}", threading.set_inter_op_parallelism_threads, count)
        call("growth", experimental.set_memory_growth, cpu, True)
        call("limit", config.set_logical_device_configuration, cpu, [config.LogicalDeviceConfiguration(memory_limit=9)])
        call("no cpu", config.set_visible_devices, [])
        call("cpu", config.set_visible_devices, [cpu], "CPU")
        call("no gpu", config.set_visible_devices, [], "GPU")
        call("soft", config.set_soft_device_placement, False)
        call("tf32", experimental.enable_tensor_float_32_execution, False)

    read()
    write()
    read()
    call("devices", lambda: [device.name for device in config.list_logical_devices()])
    call("generator", lambda: tensorflow.random.Generator.from_non_deterministic_state() and None)
    write()
    read()
    call("determinism", experimental.enable_op_determinism)
    call("generator", lambda: tensorflow.random.Generator.from_non_deterministic_state() and None)
    return said


def print_the_real_transcript() -> None:
    import tensorflow as tf

    print(json.dumps(_transcript(tf)))


def test_the_fake_tensorflow_answers_as_the_real_one(fresh_process: FreshProcess) -> None:
    real = json.loads(fresh_process(print_the_real_transcript, CUDA_VISIBLE_DEVICES="").stdout)
    assert _transcript(FakeTensorFlow()) == real
    assert real[-1] == "generator: RuntimeError"
    assert "logical 2: RuntimeError" in real
    assert "intra 2: RuntimeError" in real
