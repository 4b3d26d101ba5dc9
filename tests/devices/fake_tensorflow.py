"""A TensorFlow that has devices and nothing else, so that machines with 0, 1, 2 or 8 GPUs can be had anywhere.

Its configuration follows the rules of TensorFlow's own; ``test_fake_tensorflow.py`` holds it against the real one.
Put on the path as ``tensorflow.py`` it is what ``import tensorflow`` finds, with FAKE_TENSORFLOW_GPUS cards.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class PhysicalDevice:
    name: str
    device_type: str


@dataclass(frozen=True)
class LogicalDevice:
    name: str
    device_type: str


@dataclass(frozen=True)
class LogicalDeviceConfiguration:
    memory_limit: int | None = None


class OpError(Exception):
    pass


class FakeTensorFlow:
    """The attributes that the harness uses of the module ``tensorflow``."""

    __version__ = "2.21.0"

    def __init__(self, gpus: int = 0) -> None:
        self.cpu = PhysicalDevice("/physical_device:CPU:0", "CPU")
        self.gpus = [PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(gpus)]
        self.visible = [self.cpu, *self.gpus]
        self.logical: dict[PhysicalDevice, list[LogicalDeviceConfiguration]] = {}
        self.growth: dict[PhysicalDevice, bool] = {}
        self.intra: int | None = None
        self.inter: int | None = None
        self.soft = True
        self.tf32 = True
        self.determinism = False
        self.started = False
        #: Set to let a setter or the start fail, or to let fewer devices appear than were configured.
        self.refuse_threads = False
        self.fail_to_start: Exception | None = None
        self.lose_devices = 0
        self.errors = SimpleNamespace(OpError=OpError)
        self.sysconfig = SimpleNamespace(
            get_build_info=lambda: {"cuda_version": "12.5.1", "cudnn_version": "9", "is_cuda_build": True}
        )
        self.random = SimpleNamespace(Generator=SimpleNamespace(from_non_deterministic_state=self._generator))
        self.config = SimpleNamespace(
            LogicalDeviceConfiguration=LogicalDeviceConfiguration,
            list_physical_devices=lambda kind=None: self._of_kind([self.cpu, *self.gpus], kind),
            list_logical_devices=self._list_logical,
            get_visible_devices=lambda kind=None: self._of_kind(self.visible, kind),
            set_visible_devices=self._set_visible,
            get_logical_device_configuration=self.logical.get,
            set_logical_device_configuration=self._set_logical,
            get_soft_device_placement=lambda: self.soft,
            set_soft_device_placement=lambda value: setattr(self, "soft", value),
            threading=SimpleNamespace(
                get_intra_op_parallelism_threads=lambda: self.intra or 0,
                get_inter_op_parallelism_threads=lambda: self.inter or 0,
                set_intra_op_parallelism_threads=self._set_intra,
                set_inter_op_parallelism_threads=self._set_inter,
            ),
            experimental=SimpleNamespace(
                get_device_details=lambda device: {"device_name": "Fake Card", "compute_capability": (9, 0)},
                get_memory_growth=self.growth.get,
                set_memory_growth=self._set_growth,
                enable_op_determinism=lambda: setattr(self, "determinism", True),
                tensor_float_32_execution_enabled=lambda: self.tf32,
                enable_tensor_float_32_execution=lambda value: setattr(self, "tf32", value),
            ),
        )

    @contextmanager
    def device(self, name: str) -> Iterator[None]:
        self._list_logical()
        yield

    def state(self) -> tuple[Any, ...]:
        """Everything that can be set, to see that nothing was."""
        return (
            list(self.visible),
            dict(self.logical),
            {device: value for device, value in self.growth.items() if value},
            self.intra or 0,
            self.inter or 0,
            self.soft,
            self.tf32,
            self.determinism,
            self.started,
        )

    @staticmethod
    def _of_kind(devices: Sequence[Any], kind: str | None) -> list[Any]:
        return [device for device in devices if kind in (None, device.device_type)]

    def _fixed(self, what: str) -> None:
        if self.started:
            raise RuntimeError(f"{what} cannot be modified after being initialized")

    def _set_visible(self, devices: Sequence[PhysicalDevice], kind: str | None = None) -> None:
        others = [] if kind is None else [device for device in self.visible if device.device_type != kind]
        if [*others, *devices] != self.visible:
            self._fixed("Visible devices")
            self.visible = [*others, *devices]

    def _set_logical(self, device: PhysicalDevice, parts: list[LogicalDeviceConfiguration]) -> None:
        for part in parts:
            if (part.memory_limit is None) == (device.device_type == "GPU"):
                raise ValueError("a memory limit is for GPUs, and they need one")
        if self.logical.get(device) != parts:
            self._fixed("Virtual devices")
            self.logical[device] = parts

    def _set_growth(self, device: PhysicalDevice, enable: bool) -> None:
        if device in self.logical:
            raise ValueError("Cannot set memory growth on device when virtual devices configured")
        if device.device_type != "GPU":
            raise ValueError("Cannot set memory growth on non-GPU devices")
        if self.growth.get(device) != enable:
            self._fixed("Physical devices")
            self.growth[device] = enable

    def _set_intra(self, count: int) -> None:
        if self.intra != count:
            self._fixed("Intra op parallelism")
            if self.refuse_threads:
                raise ValueError("refused")
            self.intra = count

    def _set_inter(self, count: int) -> None:
        if self.inter != count:
            self._fixed("Inter op parallelism")
            self.inter = count

    def _list_logical(self, kind: str | None = None) -> list[LogicalDevice]:
        if not self.started and self.fail_to_start is not None:
            raise self.fail_to_start
        self.started = True
        found = []
        for each in ("CPU", "GPU"):
            count = sum(len(self.logical.get(device, [None])) for device in self._of_kind(self.visible, each))
            count -= self.lose_devices if each == "CPU" else 0
            found += [LogicalDevice(f"/device:{each}:{index}", each) for index in range(count)]
        return self._of_kind(found, kind)

    def _generator(self) -> None:
        if self.determinism:
            raise RuntimeError('"from_non_deterministic_state" cannot be called when determinism is enabled.')


if __name__ == "tensorflow":
    sys.modules[__name__] = FakeTensorFlow(int(os.environ.get("FAKE_TENSORFLOW_GPUS", "0")))  # type: ignore[assignment]
