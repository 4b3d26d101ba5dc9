"""The kinds of finding: the stable code of each, what it means, an example, the usual causes, and what to do."""

from __future__ import annotations

from typing import NamedTuple


class FindingKind(NamedTuple):
    """One kind. A code never changes its meaning: 1xx are results, 2xx places, 3xx trainings, 4xx hardware."""

    code: str
    name: str
    meaning: str
    example: str
    causes: str
    remedy: str


_ALL = (
    FindingKind(
        "H101",
        "structure",
        "the outputs are not nested as in the reference, or an output is missing",
        "the reference returns a dict with `mean` and `loss`, and the parallel program returns a tuple",
        "the return value was changed in only one of the two programs; one branch of a condition returns a different "
        "nest of tensors",
        "return the same nest of tensors from both programs",
    ),
    FindingKind(
        "H102",
        "shape",
        "an output has the wrong shape: rows are missing, or the batch was split along the wrong axis",
        "expected (10, 4), found (8, 4): ten rows were split into four equal parts",
        "integer division of the batch size; the last, shorter part is left out; a different `axis` in the split and "
        "in the join",
        "split with `tf.split(x, sizes)` and sizes that add up to the batch size, or use `harness.make_parallel`",
    ),
    FindingKind(
        "H103",
        "dtype",
        "an output has the wrong dtype",
        "expected float32, found float64",
        "a cast in one program only; a NumPy array, float64 by default, in place of a tensor; a mixed-precision policy",
        "cast at the same place in both programs",
    ),
    FindingKind(
        "H104",
        "value",
        "an output, or a variable after the call, differs by more than rounding explains; or it is NaN or "
        "infinite where the reference is finite",
        "each device takes the mean over its own rows instead of over the batch",
        "an op that mixes rows (batch normalisation, a softmax or a mean over the batch); a mean of means of parts of "
        "different sizes; parts joined in a different order; a lower precision in one program; random ops",
        "let each device compute only what needs no rows of other devices, and join sums and counts instead of means; "
        "if an op or a rewrite of the graph is at fault, use one of the settings that, according to the finding, make "
        "the difference go away",
    ),
    FindingKind(
        "H105",
        "gradient",
        "a gradient differs by more than rounding explains",
        "gradients are N times too large on N devices",
        "gradients are added up where they should be averaged, or the other way round; a regulariser counted once per "
        "device; a `tf.stop_gradient`; clipping before the gradients are added up",
        "divide each device's loss by the number of rows of the whole batch, and add up the gradients",
    ),
    FindingKind(
        "H106",
        "missing-gradient",
        "a gradient is None where the reference has one",
        "the gradient of `w` is None",
        "the path from the variable to the loss is cut by `numpy()`, a cast to an integer, a copy of the variable, or "
        "a tape that does not watch the variable",
        "compute the loss from the variable with TensorFlow ops alone, inside the tape",
    ),
    FindingKind(
        "H107",
        "nondeterminism",
        "two runs of the same callable on the same inputs differ",
        "a dropout layer draws new numbers in each call",
        "random ops without a fixed seed; Python state that a call changes; a data race between devices",
        "use stateless random ops, with the seed as an input; switch dropout off; keep state in variables, and pass "
        "them as `variables=`",
    ),
    FindingKind(
        "H108",
        "error",
        "the program under test raised an exception",
        "ValueError: Dimensions must be equal, but are 3 and 5",
        "a program that works only on one device, only in eager code, or only with one batch size",
        "run the program by itself with the same inputs and devices; the finding gives the error message and the line",
    ),
    FindingKind(
        "H201",
        "op-placement",
        "an op did not run on the device that its scope names (soft placement, XLA, a Python function) or on the "
        "device of its shard, or it ran on a device that the program should not use",
        "a MatMul in the scope of GPU:1 ran on GPU:0",
        "soft placement of an op without a kernel for the device; a variable on another device; a hard-coded "
        "device name; work on a shard outside of the shard's scope",
        "switch soft placement off to see the error, create the variable where it is used, and take the device "
        "from the list of devices",
    ),
    FindingKind(
        "H202",
        "gradient-placement",
        "a backward op did not run on the device of its forward op",
        "all MatMul ops of the backward pass ran on CPU:0",
        "`tape.gradient` is called outside of the device scopes: the backward ops run where it is called",
        "use `harness.make_parallel`, or wrap the step in `harness.colocate_gradients()`",
    ),
    FindingKind(
        "H203",
        "variable-placement",
        "a variable is not on the device that uses it, or an optimizer slot is not on the device of its variable",
        "the momentum of a weight on GPU:1 is on GPU:0",
        "variables that a layer or an optimizer creates in its first call, outside of the device scope",
        "build layers and optimizers in the scope of their device",
    ),
    FindingKind(
        "H204",
        "unused-device",
        "a device that the program should use did nothing, or next to nothing, of the common work: joins, losses, "
        "copies and sums of gradients do not count",
        "GPU:3 ran no op",
        "fewer parts of the batch than devices; a wrong index into the list of devices; a batch that is too small; "
        "the model stands outside the scope",
        "check the loop over the devices; pass as `devices=` only the devices that the program uses",
    ),
    FindingKind(
        "H205",
        "transfer",
        "a tensor moves between devices that should not exchange it: in a pipeline, tensors move only to the next "
        "stage and gradients only to the previous one; in an ensemble, only arguments and results move",
        "an activation goes from GPU:0 to GPU:2",
        "a skip connection over a stage; a variable that two stages or members share; a loss on the first device",
        "put layers that share a variable into one stage, and compute the loss on the last device",
    ),
    FindingKind(
        "H206",
        "shared-gpu",
        "threads ran eager ops on one GPU at the same time, and TensorFlow may give an op the arguments of another "
        "thread's op: an error about shapes, a wrong value, or a program that hangs",
        "two threads called `tf.broadcast_to` on GPU:0 at once; TensorFlow hands shapes and axes to the GPU "
        "under a key that all calls share (TensorFlow issue 123980)",
        "threads without a device scope, which all use the first GPU; a gradient that a thread takes outside of its "
        "scope; more threads than GPUs",
        "give each thread a GPU of its own, or have the threads call a `tf.function`",
    ),
    FindingKind(
        "H207",
        "repeated-work",
        "devices compute the same products, and each keeps a part of them, or they are added up again",
        "4 devices run a layer for all 32 rows, and each keeps 8 of them",
        "the batch is cut behind the layers, or not at all; each tower is given the whole batch",
        "cut the batch, and run the layers of each part in the scope of its device",
    ),
    FindingKind(
        "H208",
        "serial-devices",
        "the devices work one after the other: the work of one shard or member waits for that of another one, and "
        "reads nothing of it, or nothing that changes its results",
        "tower 1 stands in `tf.control_dependencies([result_of_tower_0])`",
        "control dependencies that were meant for the ops of one device, or for an update after all towers; a result "
        "of the tower before, times 0",
        "let only that wait for other devices which needs what they did",
    ),
    FindingKind(
        "H301",
        "sync",
        "replicas hold different values of a variable that they share, or a device takes no part in a collective",
        "the moving mean of replica 1 differs from that of replica 0",
        "an update in a branch that one replica does not take; batch normalisation without `synchronized=True`",
        "apply the same updates on all replicas, from gradients that were all-reduced",
    ),
    FindingKind(
        "H302",
        "update-count",
        "an optimizer, or a variable that workers add to, was updated too often or too rarely",
        "the optimizer counted 4 updates in 2 steps",
        "`apply_gradients` called once per shard, or twice in each replica's context; lost asynchronous updates",
        "add up the gradients of the whole batch, and apply them once per step",
    ),
    FindingKind(
        "H303",
        "input",
        "some rows were given to replicas twice, or not at all",
        "all 4 replicas were given the same 8 rows",
        "a dataset that each replica reads in full; sharding by file with fewer files than workers",
        "use `strategy.experimental_distribute_dataset`, or shard by `input_pipeline_id`",
    ),
    FindingKind(
        "H401",
        "software",
        "the driver, CUDA, cuDNN, NCCL or the kernels in TensorFlow's wheel do not fit together, or a library "
        "is missing",
        "TensorFlow was built for CUDA 12.5, and the driver supports 11.8",
        "an old driver; `tensorflow` without `[and-cuda]`; a library path that belongs to another installation",
        "update the driver, and in a fresh environment run: python -m pip install 'tensorflow[and-cuda]'",
    ),
    FindingKind(
        "H402",
        "missing-device",
        "a GPU that the driver reports, or that was required, is not available to TensorFlow",
        "the driver reports 8 GPUs, and TensorFlow sees 7",
        "`CUDA_VISIBLE_DEVICES` hides the GPU; a GPU that fell off the bus; missing CUDA libraries; a container "
        "without the device",
        "compare `nvidia-smi -L` with `harness devices`, and read the kernel log for Xid errors",
    ),
    FindingKind(
        "H403",
        "memory",
        "a device's memory does not hold what was written, cannot be allocated, or leaks; or the driver counted memory "
        "errors (ECC)",
        "GPU:2 did not hold a pattern: 3 words changed",
        "defective memory; other processes that hold memory; a memory limit above the free memory",
        "reset the GPU and run the check again; replace the board if the errors come back",
    ),
    FindingKind(
        "H404",
        "corruption",
        "a program whose exact result is known gave a different result, or a copy arrived with different bits",
        "one result in 40,000 is wrong on GPU:5",
        "a defective GPU, cable or riser; overclocking; too little power or cooling",
        "take the device out of service, and run `harness validate --only corruption --level deep` on it",
    ),
    FindingKind(
        "H405",
        "arithmetic",
        "the result of an operation differs from its float64 reference by more than rounding allows",
        "matmul float32 has TF32's precision although TF32 is off",
        "TF32 or a reduced-precision setting; a faulty kernel; a defective GPU",
        "switch TF32 off, try another version of TensorFlow, and compare with a GPU of the same model",
    ),
    FindingKind(
        "H406",
        "rate",
        "a device computes or copies slower than it should, or faster than is possible",
        "GPU:3 multiplies matrices at 61% of the rate of the other GPUs",
        "throttling because of heat or power; another process on the device; a power limit; wrong rates in the profile",
        "stop other programs, check clocks and temperature with `nvidia-smi -q`, and measure again",
    ),
    FindingKind(
        "H407",
        "link",
        "a PCIe or NVLink connection is narrower or slower than it should be",
        "GPU:1 runs at PCIe x8 instead of x16",
        "a badly seated board; a riser or a slot with fewer lanes; a disabled NVLink bridge",
        "reseat the board, check the slot and the firmware settings, and measure again",
    ),
    FindingKind(
        "H408",
        "sensor",
        "a GPU is too hot or is throttled, or its driver reported an error (Xid)",
        "GPU:4 reached 93 C and was throttled",
        "a blocked fan or air flow; a power limit; a defective GPU",
        "improve the cooling; look the Xid number up in NVIDIA's list",
    ),
    FindingKind(
        "H409",
        "isolation",
        "a process saw or used a GPU that was given to another process",
        "the process of GPU:1 sees 2 GPUs",
        "`CUDA_VISIBLE_DEVICES` is not passed on to the process, or is set after TensorFlow started",
        "set `CUDA_VISIBLE_DEVICES` to the UUID of the GPU in the environment of each process",
    ),
    FindingKind(
        "H410",
        "mixed-cards",
        "a GPU differs from most of the others of the machine in its model, its memory or its VBIOS",
        "GPU:5 is an NVIDIA A100-SXM4-80GB, the other 7 GPUs are NVIDIA H100 80GB HBM3",
        "a replacement card of another model; a VBIOS that was not updated with the others; ECC off on one card",
        "swap the card for one like the others, install the same VBIOS, or accept the difference with "
        "`--known-failures`",
    ),
)

#: The kinds by name.
KINDS = {kind.name: kind for kind in _ALL}


def find_kind(text: str) -> FindingKind | None:
    """Return the kind with this code or name, in any case, or ``None``."""
    wanted = text.strip().lower()
    return next((kind for kind in _ALL if wanted in (kind.code.lower(), kind.name)), None)
