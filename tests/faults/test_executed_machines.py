"""The faults of described machines act in what TensorFlow executes: each is found on its card, and clean twins pass."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import pytest
from described_machines import H100, text
from executed_machines import FAULTY, LEAKING, all_machines, every_machine, spend_little

from harness.checking.check import CheckContext
from harness.checking.execute import execute
from harness.devices.described import driver_tables
from harness.devices.described.description import FAULT_KINDS, FAULT_TABLES
from harness.records import CardVerdict, CheckResult, Quantity, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts
from harness.softgpu import DescribedGpus
from harness.softgpu.compiler import NAMES

TOLD_TABLES = [table for table in FAULT_TABLES if table.__module__ == driver_tables.__name__]
_WITHOUT = not any(shutil.which(name) for name in NAMES)
_HINTS = ("nccl", "ring", "auto")
#: What these checks cannot show: it takes another process, rates, or more than one run (test_faults_in_time.py).
ELSEWHERE = {"absent", "cuda-unavailable", "nondeterministic", "slow", "collective-hang"}
#: What only the driver tells: test_driver_reports.py.
TOLD = {str(get_args(table.model_fields["kind"].annotation)[0]) for table in TOLD_TABLES}


def test_there_are_40_faulty_machines_and_40_clean_ones_of_every_kind() -> None:
    planted = {fault.split(" ")[0] for machine in (*FAULTY, *LEAKING) for fault in machine.faults}
    assert planted | ELSEWHERE | TOLD == set(FAULT_KINDS)
    verdicts = [machine.verdict for machine in all_machines()]
    assert verdicts.count(Verdict.PASS) >= 40
    assert len(verdicts) - verdicts.count(Verdict.PASS) >= 40


@pytest.mark.long
@pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
def test_every_fault_is_found_on_its_card_and_every_clean_machine_passes(fresh_process: Callable[..., object]) -> None:
    fresh_process(every_machine, timeout_s=1100)


def one_card_in_two_parts() -> None:
    """Take one card as ``auto`` does, and run the checks on its halves: in good order, and with two faults."""
    import tensorflow as tf

    import harness
    from harness.checks.registry import SUITE
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.hardware.real import TensorFlowMachine
    from harness.softgpu import load, switch

    def described(*faults: str) -> DescribedGpus:
        made = read_description("one.toml", text(1, H100, *faults, cards="software_mib = 1024"))
        return gpus_of(made, "one.toml")

    def checked(*faults: str) -> tuple[list[CheckResult], list[CardVerdict]]:
        switch(described(*faults))
        made = TensorFlowMachine(devices)
        assert [card.part for card in made.cards] == ["logical GPU"] * 2
        assert len({card.uuid for card in made.cards}) == 1
        assert not made.pair_links(), "copies inside a card have no link to be faster than"
        ids = ["cards", "copies", "corruption", "collectives", "sustained-load"]
        results = [execute(check, CheckContext(devices, machine=made)) for check in SUITE.select(ids)]
        record = RunRecord("", "", (), "", Verdict.PASS, 0, True, tuple(results), cards=made.cards)
        return results, card_verdicts(record)

    load(tf, described())
    devices = harness.configure("auto")
    assert "auto selected gpu:2x511" in devices.reason
    assert {device.kind for device in devices} == {"logical-gpu"}
    with pytest.MonkeyPatch.context() as patch:
        spend_little(patch)
        results, verdicts = checked()
        assert [each.verdict for each in results] == [Verdict.PASS] * 5, [each.reason for each in results]
        assert verdicts == []
        figures = [figure for result in results for figure in result.figures]
        rates = [figure for figure in figures if figure.quantity in (Quantity.RATE, Quantity.BANDWIDTH)]
        assert {"GPU:0", "GPU:1"} <= {figure.device for figure in rates}
        assert not [each for each in rates if re.search("profile|peak|NVLink", each.expected_from or "")]
        _, verdicts = checked("link-width card = 0", "bit-flip card = 0, probability = 0.5")
        (verdict,) = verdicts
        assert (verdict.labels, verdict.action) == (("GPU:0", "GPU:1"), "replace")


@pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
def test_two_parts_of_one_card_are_judged_as_parts_and_named_as_one_card(fresh_process: Callable[..., object]) -> None:
    fresh_process(one_card_in_two_parts, timeout_s=900)


def faults_in_kernels_of_every_kind() -> None:
    """Plant a fault in an op of each kind of kernel that software GPUs have, and lose a card in the middle of a run."""
    import numpy as np
    import tensorflow as tf

    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.softgpu import load, switch

    def described(*faults: str) -> DescribedGpus:
        return gpus_of(read_description("two.toml", text(2, H100, *faults, cards="software_mib = 64")), "two.toml")

    random = np.random.default_rng(1)
    images = random.standard_normal((2, 6, 6, 4)).astype(np.float32)
    weights = random.standard_normal((3, 3, 4, 4)).astype(np.float32)
    states = np.zeros((1, 2, 3), np.float32)

    @tf.function  # type: ignore[untyped-decorator]
    def all_reduce() -> list[tf.Tensor]:
        made = []
        for device in range(2):
            with tf.device(f"GPU:{device}"):
                x = tf.constant([1.0, 2.0])
                made.append(tf.raw_ops.NcclAllReduce(input=x, reduction="sum", num_devices=2, shared_name="sum"))
        return made

    programs: dict[str, Callable[[], tf.Tensor]] = {
        "MatMul": lambda: tf.matmul(images[0, 0], images[0, 0], transpose_b=True),
        "Relu": lambda: tf.nn.relu(images),
        "Conv2D": lambda: tf.nn.conv2d(images, weights, 1, "SAME"),
        "MaxPool": lambda: tf.nn.max_pool2d(images, 2, 2, "SAME"),
        "CudnnRNNV3": lambda: (
            tf.raw_ops.CudnnRNNV3(
                input=images[0, :, :2],
                input_h=states,
                input_c=states,
                params=weights.ravel()[:108],
                sequence_lengths=[6, 5],
            ).output
        ),
        "NcclAllReduce": lambda: all_reduce()[1],
    }

    def on(device: int, program: Callable[[], tf.Tensor]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        with tf.device(f"GPU:{device}"):
            return np.asarray(program())

    load(tf, described())
    for op, program in programs.items():
        switch(described())
        right = on(1, program)
        switch(described(f'bit-flip card = 1, op = "{op}", probability = 1.0, bits = 4'))
        assert not np.array_equal(on(1, program), right), op
        if op != "NcclAllReduce":
            assert np.array_equal(on(0, program), right), op
        switch(described("lost card = 1, after_ops = 1"))
        with pytest.raises(tf.errors.OpError, match="GPU:1 is lost"):
            on(1, program), on(1, program), on(1, program)

    def reduced(device: int, hint: str) -> tf.Tensor:
        with tf.device(f"GPU:{device}"):
            return tf.raw_ops.CollectiveReduceV2(
                input=tf.constant([1.0, 2.0]), group_size=2, group_key=1, instance_key=_HINTS.index(hint),
                ordering_token=[], communication_hint=hint, merge_op="Add", final_op="Id", is_stateless=True,
            )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        for algorithm, dropped in (("nccl", ["nccl"]), ("ring", ["ring", "auto"]), (None, ["nccl", "ring", "auto"])):
            of = f', algorithm = "{algorithm}"' if algorithm else ""
            switch(described(f"collective-drop card = 0{of}"))
            for hint in _HINTS:
                _, found = pool.map(reduced, range(2), [hint] * 2)
                assert found.numpy().tolist() == ([1.0, 2.0] if hint in dropped else [2.0, 4.0]), (algorithm, hint)
            assert all_reduce()[1].numpy().tolist() == ([1.0, 2.0] if "nccl" in dropped else [2.0, 4.0])
    # What a lost card holds is lost with it, and nothing can be copied there.
    switch(described("lost card = 1, after_ops = 2"))
    with tf.device("GPU:1"):
        held = tf.nn.relu(images)
        with pytest.raises(tf.errors.InternalError, match="GPU:1 is lost"):
            tf.nn.relu(held), tf.nn.relu(held)
    with tf.device("GPU:0"):
        for use in (held.numpy, lambda: tf.identity(held)):
            with pytest.raises(tf.errors.InternalError):
                use()
        assert np.array_equal(tf.nn.relu(images), np.maximum(images, 0))


@pytest.mark.skipif(_WITHOUT, reason="needs a C++ compiler, to make software GPUs")
def test_faults_act_in_kernels_of_every_kind_and_a_lost_card_gives_nothing_back(
    fresh_process: Callable[..., object],
) -> None:
    fresh_process(faults_in_kernels_of_every_kind, timeout_s=900)
