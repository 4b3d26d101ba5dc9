"""What a traced run says of a measurement: each rule with ops and transfers that break it, and others that do not."""

from __future__ import annotations

import pytest

import harness
from harness.devices.device import Device
from harness.devices.name import DeviceName
from harness.evidence.op import Op, Role, Transfer
from harness.speed.suspicions import about_parallel, about_single, about_transfers, trace_both, work_by_device

_HOST = DeviceName("localhost", 0, 0, "CPU", 0)
_GPUS = [DeviceName("localhost", 0, 0, "GPU", index) for index in range(2)]
_DEVICES = [Device(str(name), "gpu", f"/physical_device:GPU:{name.index}") for name in _GPUS]
_MB = 1_000_000


def _op(device: DeviceName | None, op_type: str = "MatMul", role: Role = "forward", name: str = "fn/op") -> Op:
    return Op(name, op_type, op_type, device, None, role)


def test_a_baseline_on_one_gpu_is_left_alone_whatever_the_host_does_for_it() -> None:
    on_the_host = [_op(_HOST, "ConcatV2"), _op(_HOST, "Const", "constant"), _op(_HOST, "TensorSliceDataset", "data")]
    assert about_single([_op(_GPUS[1]), _op(_GPUS[1], role="gradient"), _op(None), *on_the_host], _DEVICES) == []


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ([], "the devices of the ops of `single` are unknown"),
        ([_op(None), _op(_HOST, "Const", "constant")], "the devices of the ops of `single` are unknown"),
        ([_op(_HOST)], "`single` ran only on devices that are not in devices= (CPU:0: 1 op), so it"),
        ([_op(_GPUS[0]), _op(_GPUS[1])], "`single` ran on 2 of the devices (GPU:0: 1 op, GPU:1: 1 op)"),
        ([_op(_GPUS[0]), _op(_HOST), _op(_HOST)], "`single` also ran ops on devices that are not in devices= (CPU:0: "),
        ([_op(_GPUS[0]), _op(_GPUS[1], "ResourceApplyAdam", "update")], "`single` ran on 2 of the devices"),
    ],
)
def test_a_baseline_that_is_none_is_named(ops: list[Op], said: str) -> None:
    [found] = about_single(ops, _DEVICES)
    assert found.startswith(said)


def test_a_parallel_side_on_all_gpus_is_left_alone_in_eager_code_too() -> None:
    """Eager ops on GPUs return before they are done, so that one thread can feed several."""
    assert about_parallel([_op(gpu, name="MatMul") for gpu in _GPUS], _DEVICES) == []


def test_an_idle_device_is_named() -> None:
    [found] = about_parallel([_op(_GPUS[0]), _op(_GPUS[1], "Const", "constant")], _DEVICES)
    assert found == "`parallel` ran no op on GPU:1: it uses only 1 of 2 devices"


def test_of_work_in_other_processes_it_is_said_that_nothing_is_known() -> None:
    assert about_parallel([], _DEVICES) == ["`parallel` ran no op in this process, so its devices are unknown"]


def test_transfers_of_work_in_other_processes_are_missing_and_not_0(devices: harness.Devices) -> None:
    import tensorflow as tf

    one = devices[0]
    with tf.device(one.name):
        x = tf.constant([[1.0]])
    here = trace_both(lambda: x @ x, lambda: x @ x, [one])
    assert (here.transfers, here.transferred_bytes) == (0, 0)
    elsewhere = trace_both(lambda: x @ x, lambda: None, [one])
    assert (elsewhere.transfers, elsewhere.transferred_bytes) == (None, None)
    assert [line for line in elsewhere.warnings if "`parallel` ran no op in this process" in line]


@pytest.mark.parametrize(
    ("names", "found"), [(("MatMul", "MatMul_1"), 1), (("fn/MatMul", "fn/MatMul_1"), 0), (("MatMul", "fn/MatMul"), 0)]
)
def test_eager_ops_on_several_cpus_take_turns(names: tuple[str, str], found: int) -> None:
    cpus = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(2)]
    devices = [Device(str(name), "logical-cpu", "/physical_device:CPU:0") for name in cpus]
    said = about_parallel([_op(cpu, name=name) for cpu, name in zip(cpus, names, strict=True)], devices)
    assert len([line for line in said if "one by one" in line]) == found


def test_data_that_goes_through_the_host_is_named_with_its_size() -> None:
    copies = [Transfer(_HOST, gpu, "x", _MB) for gpu in _GPUS] + [Transfer(_GPUS[0], _HOST, "y", _MB)]
    [found] = about_transfers(copies, _DEVICES)
    assert found.startswith("each call of `parallel` copies 3.0 MB between the host and the devices (3 copies)")


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(_GPUS[0], _GPUS[1], "between devices", _MB),
        Transfer(_HOST, _GPUS[0], "a learning rate", 4),
        Transfer(_HOST, _GPUS[0], "of unknown size", None),
    ],
)
def test_other_transfers_are_left_alone(transfer: Transfer) -> None:
    assert about_transfers([transfer], _DEVICES) == []


def test_work_is_counted_where_it_ran() -> None:
    ops = [_op(_GPUS[0]), _op(_GPUS[0], "Tanh"), _op(_GPUS[1], role="gradient"), _op(_HOST, "Reshape"), _op(None)]
    assert work_by_device(ops) == {_GPUS[0]: 2, _GPUS[1]: 1}
