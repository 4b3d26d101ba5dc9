"""Kernels and copies of GPUs, from a profile as a machine with GPUs writes it."""

from __future__ import annotations

import pytest
from xspaces import START_NS, Made, space

from harness.errors import EvidenceError
from harness.speed.timeline.placements import Part, Placements
from harness.speed.timeline.planes import HostPlane, gpu_spans
from harness.speed.timeline.profiling import account
from harness.speed.timeline.xplane import capture_of

TASK = "/job:localhost/replica:0/task:0"
GPU0, GPU1 = f"{TASK}/device:GPU:0", f"{TASK}/device:GPU:1"

GPUS: dict[str, dict[str, list[Made]]] = {
    "/device:GPU:0": {
        "Stream #13(Compute)": [("ampere_sgemm_128x64_nn", 0, 400, {}), ("tanh_kernel", 400, 100, {})],
        "Stream #14(MemcpyH2D)": [("MemcpyH2D", 100, 50, {})],
        "Stream #20(NCCL)": [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 500, 100, {})],
        "Steps": [("1", 0, 1000, {})],
        "TensorFlow Ops": [("MatMul", 0, 400, {})],
    },
    "/device:GPU:1": {
        "Stream #13(Compute)": [("ampere_sgemm_128x64_nn", 200, 400, {})],
        "Stream #15(MemcpyP2P)": [("MemcpyP2P", 600, 100, {})],
    },
}


def test_kernels_copies_and_collectives_are_told_apart_per_gpu() -> None:
    spans = gpu_spans(capture_of(space(GPUS), TASK, "made"))
    sums = account(spans, [(START_NS, START_NS + 1000)], [GPU0, GPU1])
    zero, one = sums.times
    assert (zero.compute_ns, zero.transfer_ns, zero.collective_ns) == (500, 50, 100)
    assert (one.compute_ns, one.transfer_ns, one.collective_ns) == (400, 100, 0)
    assert sums.overlap_share == 0.3, "from 200 to 500 of 1000 ns"
    assert sums.alone_ns == 300


def test_the_same_time_in_derived_lines_counts_once() -> None:
    spans = gpu_spans(capture_of(space(GPUS), TASK, "made"))
    assert sorted(span.name for span in spans if span.device == GPU0) == [
        "MemcpyH2D",
        "ampere_sgemm_128x64_nn",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "tanh_kernel",
    ]


def test_starting_a_kernel_on_the_host_is_no_computing() -> None:
    process = ("ExecutorState::Process", 0, 50, {"_c": 7, "id": 1})
    host = {"/host:CPU": {"tf_Compute/1": [process, ("MatMul:MatMul", 10, 20, {})]}}
    placements = Placements(parts=(Part(GPU0, frozenset({"MatMul"})),))
    capture = capture_of(space(host), TASK, "made")
    assert HostPlane(capture, [f"{TASK}/device:CPU:0", GPU0], placements).spans([]) == []


def test_a_profile_without_its_start_is_refused() -> None:
    made = space({})
    del made.planes[:]
    with pytest.raises(EvidenceError, match="has no start and stop time"):
        capture_of(made, TASK, "made")
