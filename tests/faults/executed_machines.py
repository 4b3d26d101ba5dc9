"""Described machines whose faults act in what TensorFlow executes, on software GPUs of one process."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from actions import wrong_actions
from described_machines import H100, Subject, blamed, text

from harness.checking.check import DEFAULT_SEED, CheckContext, Level
from harness.records import Finding, Verdict

L4, V100, A100, PCIE, H200 = (
    "NVIDIA L4",
    "Tesla V100-SXM2-16GB",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA H100 PCIe",
    "NVIDIA H200",
)
T4, RTX = "Tesla T4", "NVIDIA GeForce RTX 4090"
#: Devices of the process, and the memory of each.
DEVICES, MEMORY = 9, "software_mib = 64"
LAPTOP = "NVIDIA GeForce RTX 4060 Laptop GPU"
#: Lines of ``[cards]``: four cards with links between every two; pairs with a bridge; slices; a card of a laptop.
HGX_4 = "bridges = [[0, 1, 4], [0, 2, 4], [0, 3, 4], [1, 2, 4], [1, 3, 4], [2, 3, 4]]"
BRIDGES, ONE_BRIDGE = "bridges = [[0, 1, 12], [2, 3, 12]]", "bridges = [[0, 1, 12]]"
MIG = "slices = 2"
OF_LAPTOP = """compute_capability = "8.9"
pcie_width = 8
without = ["ecc_corrected", "ecc_uncorrected", "power_limit_w", "remapped_rows", "xid"]"""
#: All that says something of one card.
ALL = "software cards memory copies corruption sustained-load"


class Machine(NamedTuple):
    """A machine, the checks to run on it, and who must be named. ``verdict`` is the worst of the checks.

    ``lines`` are more of ``[cards]``. ``kind`` is what its devices are taken for.
    """

    cards: int
    model: str
    faults: Sequence[str]
    checks: str
    who: Set[Subject]
    verdict: Verdict = Verdict.FAIL
    lines: str = ""
    kind: Any = "software-gpu"
    level: Level = Level.QUICK


FAULTY = [
    Machine(4, H100, ["bit-flip card = 2, probability = 0.3"], "corruption", {2}),
    Machine(1, L4, ["bit-flip card = 0, probability = 0.3"], "corruption", {0}),
    Machine(2, A100, ["bit-flip card = 1, probability = 0.3, bits = 4"], "corruption", {1}),
    Machine(3, V100, ["bit-flip card = 0, probability = 1.0, run = 32"], "corruption", {0}),
    Machine(2, H200, ['bit-flip card = 1, op = "MatMul", probability = 0.5, bits = 2, run = 8'], "corruption", {1}),
    Machine(3, H100, ['bit-flip card = 2, dtype = "float32", probability = 0.5'], "corruption", {2}),
    Machine(3, A100, ['bit-flip card = 1, dtype = "bfloat16", probability = 0.5'], "corruption", {1}),
    Machine(3, A100, ['bit-flip card = 2, op = "Conv2D", probability = 0.5'], "corruption", {2}),
    Machine(3, L4, ["bit-flip card = 1, probability = 0.5, elements = [5, 38]"], "corruption", {1}),
    Machine(2, H100, ['bit-flip card = 0, dtype = "float16", probability = 0.5'], "corruption", {0}),
    Machine(3, T4, ["bit-flip card = 0, probability = 1.0", "wrong-card card = 2"], "corruption", {0, 2}),
    Machine(4, H100, ["wrong-card card = 1"], "corruption", {1}),
    Machine(1, PCIE, ["wrong-card card = 0"], "corruption", {0}),
    Machine(2, L4, ['wrong-arithmetic card = 0, dtype = "float32"'], "corruption", {0}),
    Machine(3, H100, ['wrong-arithmetic card = 1, dtype = "float32", relative_error = 1e-4'], "corruption", {1}),
    Machine(2, H100, ["no-write card = 1"], "corruption", {1}),
    Machine(3, A100, ["no-write card = 0, probability = 0.5"], "corruption", {0}),
    Machine(4, H100, ["zeros pair = [1, 3]"], "copies corruption", {(1, 3)}),
    Machine(2, L4, ["zeros pair = [1, 0]"], "copies", {(1, 0)}),
    Machine(4, L4, ["zeros pair = [0, 2]", "zeros pair = [2, 0]"], "copies", {(0, 2), (2, 0)}),
    Machine(4, V100, ["pair-flip pair = [3, 2]"], "copies", {(3, 2)}),
    Machine(3, H100, ["pair-flip pair = [0, 1], probability = 0.5"], "corruption", {(0, 1)}),
    Machine(4, H100, ["shifted pair = [0, 3]"], "copies", {(0, 3)}),
    Machine(2, A100, ["shifted pair = [1, 0]"], "corruption", {(1, 0)}),
    Machine(3, H100, ["stale pair = [2, 1]"], "copies", {(2, 1)}),
    Machine(2, L4, ["stale pair = [0, 1]"], "corruption", {(0, 1)}),
    Machine(4, H100, [f"zeros pair = [0, {to}]" for to in (1, 2, 3)], "copies corruption collectives", {0}),
    Machine(4, H100, [f"pair-flip pair = [{of}, 2]" for of in (0, 1, 3)], "corruption collectives", {2}),
    # The way between the cards is wrong, and none of them.
    Machine(
        4,
        RTX,
        [f"zeros pair = [{of}, {to}]" for of in range(4) for to in range(4) if of != to],
        "copies corruption collectives",
        set(),
    ),
    # Few copies of each: the other links of the card are right, which the check has to find out.
    Machine(
        5,
        A100,
        [f"pair-flip pair = [1, {to}], probability = 0.5" for to in (2, 4)],
        "copies corruption",
        {(1, 2), (1, 4)},
    ),
    Machine(4, H100, ["collective-drop card = 1"], "collectives", {1}),
    # Wrong copies do not explain the share of another card.
    Machine(
        4, V100, ["collective-drop card = 1", "shifted pair = [2, 3], probability = 0.2"], "collectives", {1, (2, 3)}
    ),
    Machine(4, H200, ["collective-drop card = 0"], "collectives", {0}),
    # As many cards as in the line above: a process keeps its groups of collectives.
    Machine(4, L4, ['collective-drop card = 2, algorithm = "ring"'], "collectives", {2}),
    Machine(4, H100, ['library-missing library = "libnccl.so.2"'], "collectives", {"software"}),
    Machine(4, H100, ["missing card = 3"], "cards", {3}),
    Machine(2, L4, ["missing card = 0"], "cards", {0}),
    Machine(4, A100, ["misnumbered cards = [1, 2]"], "cards", {1, 2}, Verdict.WARN),
    Machine(3, H100, ["lost card = 1"], "cards", {1}),
    Machine(2, V100, ["lost card = 0"], "cards", {0}),
    Machine(3, A100, ['nvml-error error = "NVML_ERROR_RESET_REQUIRED", card = 2'], "cards", {2}),
    Machine(2, L4, ['nvml-error error = "NO_PERMISSION", card = 0'], "cards", {0}, Verdict.WARN),
    # The cards behind it keep their numbers.
    Machine(5, A100, ['nvml-error error = "NVML_ERROR_RESET_REQUIRED", card = 1'], "cards", {1}),
    Machine(4, H100, ['nvml-error error = "NO_PERMISSION", card = 0'], "cards", {0}, Verdict.WARN),
    Machine(4, H100, ["lost card = 2, after_ops = 150"], "memory corruption sustained-load", {2}),
    Machine(3, V100, ["stuck-bit card = 2"], "memory", {2}),
    Machine(2, H100, ["stuck-bit card = 1, word = 3000000, bit = 63, value = 0"], "memory", {1}),
    Machine(2, H100, ["memory-held card = 1"], "memory", {1}),
    Machine(4, H100, ["hot card = 3, slowdown_after_s = 0.00001"], "sustained-load", {3}),
    Machine(1, V100, ["hot card = 0, slowdown_after_s = 0.00001"], "sustained-load", {0}),
    Machine(3, H100, ["ecc card = 2, corrected_per_s = 1e6"], "sustained-load", {2}),
    Machine(2, A100, ["ecc card = 0, corrected_per_s = 0.0, uncorrected_per_s = 1e6"], "sustained-load", {0}),
    # Only what uses the whole card touches the multiprocessors that are wrong.
    Machine(4, H100, ["bit-flip card = 2, probability = 0.5, least_elements = 65536"], "sustained-load", {2}),
    Machine(4, H100, ["link-width card = 3, width = 4"], "sustained-load", {3}),
    Machine(3, A100, ["link-generation card = 1, generation = 1"], "sustained-load", {1}),
    Machine(2, H100, ["replays card = 1, per_s = 1e6"], "sustained-load", {1}),
    Machine(4, A100, ["nvlink-down card = 3, links = 2"], "sustained-load", {3}),
    Machine(1, H100, ["nvlink-down card = 0, links = 4"], "sustained-load", {0}),
    Machine(2, H100, ["xid card = 1, code = 79, after_s = 0.00001"], "sustained-load", {1}),
    Machine(3, H100, ["row-remap card = 2"], "sustained-load", {2}),
    Machine(2, A100, ['row-remap card = 0, state = "failed"'], "sustained-load", {0}),
    Machine(2, V100, ["retired-pages card = 1"], "sustained-load", {1}),
    Machine(1, T4, ["retired-pages card = 0, count = 60, pending = false"], "sustained-load", {0}),
    Machine(2, H100, ["power-limit card = 1, watts = 350.0"], "sustained-load", {1}, Verdict.WARN),
    Machine(2, H100, ['library-missing library = "libcudnn.so.9"'], "software", {"software"}),
    Machine(1, L4, ["driver-too-old"], "software", {"software"}),
    Machine(2, L4, ["kernels-missing"], "software", {0, 1}),
    Machine(4, L4, ["missing card = 0", "zeros pair = [1, 3]"], "cards copies", {0, (1, 3)}),
    Machine(4, H100, ["hot card = 0, slowdown_after_s = 0.00001", "row-remap card = 1"], "sustained-load", {0, 1}),
    Machine(8, H100, ["bit-flip card = 6, probability = 1.0", "no-write card = 7"], "corruption", {6, 7}),
    Machine(8, A100, ["lost card = 5", "misnumbered cards = [2, 3]"], "cards", {2, 3, 5}),
    Machine(7, L4, ["missing card = 6", "misnumbered cards = [0, 5]"], "cards", {0, 5, 6}),
    Machine(6, A100, ["zeros pair = [5, 0], probability = 0.3", "row-remap card = 3"], ALL, {(5, 0), 3}),
    Machine(5, H200, ["stale pair = [4, 2]", "shifted pair = [2, 4]"], "copies", {(4, 2), (2, 4)}),
    Machine(3, H100, ["xid card = 2, code = 48, after_s = 0.0", "replays card = 0, per_s = 1e6"], ALL, {0, 2}),
    Machine(8, H200, ["nvlink-down card = 7, links = 1", "link-width card = 0"], "sustained-load", {7, 0}),
    Machine(4, A100, ["nvlink-down card = 3, links = 2"], "sustained-load", {3}, lines=HGX_4),
    Machine(4, A100, ["zeros pair = [2, 0]"], "copies", {(2, 0)}, lines=HGX_4),
    Machine(4, PCIE, ["nvlink-down card = 1, links = 12"], "sustained-load", {1}, lines=BRIDGES),
    Machine(4, PCIE, ["shifted pair = [3, 2]"], "corruption", {(3, 2)}, lines=BRIDGES),
    Machine(3, PCIE, ["link-generation card = 2, generation = 3"], "sustained-load", {2}, lines=ONE_BRIDGE),
    Machine(1, LAPTOP, ["link-width card = 0"], "sustained-load", {0}, lines=OF_LAPTOP),
    Machine(1, LAPTOP, ["hot card = 0, slowdown_after_s = 0.00001"], "sustained-load", {0}, lines=OF_LAPTOP),
    Machine(1, LAPTOP, ["memory-held card = 0"], "memory", {0}, lines=OF_LAPTOP),
    # A slice is a GPU of its own, with the sensors of its card.
    Machine(1, A100, ["bit-flip card = 0, probability = 0.5"], "corruption", {0}, lines=MIG, kind="gpu"),
    Machine(1, H100, ["row-remap card = 0"], "sustained-load", {0}, lines=MIG, kind="gpu"),
    Machine(1, A100, ["stuck-bit card = 0"], "memory", {0}, lines=MIG, kind="gpu"),
]

#: What a few results do not show.
RARE = [
    Machine(
        4,
        H100,
        ['bit-flip card = 2, op = "MatMul", dtype = "bfloat16", probability = 0.003'],
        "corruption",
        {2},
        level=Level.STANDARD,
    )
]

#: Machines with a card that differs from the others.
MIXED = [
    Machine(4, H100, [], "cards", {slot}, Verdict.WARN, lines=f'[[card]]\ncard = {slot}\n{key} = "{value}"')
    for slot, key, value in ((3, "vbios", "96.00.30.00.02"), (0, "model", A100))
]

#: What looks like a fault and is none, beside machines of every model.
HARMLESS = [
    Machine(
        2,
        H100,
        ["ecc card = 0, corrected_per_s = 0.0, old_corrected = 5000, old_uncorrected = 2"],
        "sustained-load",
        set(),
    ),
    Machine(1, V100, ["retired-pages card = 0, count = 3, pending = false"], "sustained-load", set()),
    Machine(2, H100, ["memory-held card = 1, share = 0.1"], "memory", set()),
    Machine(2, A100, ["hot card = 1, slowdown_after_s = 10000.0"], "sustained-load", set()),
    Machine(1, LAPTOP, ["memory-held card = 0, share = 0.2"], ALL, set(), lines=OF_LAPTOP),
    Machine(1, A100, [], ALL, set(), lines=MIG, kind="gpu"),
    Machine(2, H100, [], "cards corruption", set(), lines="slices = 7", kind="gpu"),
    Machine(4, "NVIDIA B200", [], "sustained-load", set(), lines='compute_capability = "10.0"'),
    Machine(3, "NVIDIA A30", [], ALL, set(), lines='compute_capability = "8.0"\nbridges = [[0, 1, 4]]'),
    Machine(2, A100, [], ALL, set(), lines=MIG, kind="gpu"),
    Machine(
        2,
        RTX,
        [],
        ALL,
        set(),
        lines='[[card]]\ncard = 1\nmodel = "Quadro P1000"\ncompute_capability = "6.1"',
    ),
]

#: Last, because what has leaked stays lost; and on a card of its own, because TensorFlow asks for memory once.
LEAKING = [
    Machine(9, L4, ["stuck-allocation card = 8"], "memory", {8}),
    Machine(4, H100, ["leak card = 0, bytes_per_step = 16384"], "memory", {0}),
    Machine(1, L4, ["leak card = 0, bytes_per_step = 4096"], "memory", {0}),
]


def twin(machine: Machine) -> Machine:
    """The same machine in good order."""
    return machine._replace(faults=(), who=set(), verdict=Verdict.PASS)


def all_machines() -> list[Machine]:
    """Every faulty machine, its twin, and those that only look faulty."""
    clean = [each._replace(verdict=Verdict.PASS) for each in HARMLESS]
    made = [
        *(each for faulty in (*FAULTY, *RARE) for each in (faulty, twin(faulty))),
        *MIXED,
        *clean,
        *map(twin, LEAKING[1:]),
        *LEAKING,
    ]
    # Several have the same twin.
    return [each for number, each in enumerate(made) if each not in made[:number]]


def spend_little(patch: Any) -> None:
    """Let the checks measure briefly: only their values and sensors matter here."""
    from harness.hardware import delivery
    from harness.hardware.collectives import check as collectives
    from harness.hardware.copies import check as copies, measure as copying
    from harness.hardware.corruption import measure as corruption
    from harness.hardware.memory import check as memory, measure as patterns
    from harness.hardware.sustained_load import measure as load

    quick = Level.QUICK
    patch.setitem(corruption.ROUNDS, quick, 6)
    patch.setitem(corruption.LIMIT_S, quick, 600.0)
    patch.setitem(corruption.ROUNDS, Level.STANDARD, 6)
    patch.setitem(corruption.RESULTS_LIMIT_S, Level.STANDARD, 600.0)
    patch.setitem(delivery.COPIES, quick, 3)
    patch.setitem(copies.SIZES, quick, (4 * 2**10, 64 * 2**10))
    for name in ("_TIMES_SMALL", "_TIMES_LARGE"):
        patch.setattr(copying, name, 1)
    patch.setitem(collectives.ELEMENTS, quick, (2**12,))
    patch.setattr(collectives, "REPEATS", 1)
    patch.setitem(memory.HELD_S, quick, 0.0)
    patch.setitem(memory.STEPS, quick, 40)
    patch.setattr(patterns, "_SAMPLES", 20)
    first = patterns.patterns
    for module in (memory, patterns):
        patch.setattr(module, "patterns", lambda offset: first(offset)[:2])
    patch.setitem(load.LOAD_S, quick, 0.05)
    patch.setitem(load._ROUND_S, quick, 0.01)
    patch.setattr(load, "_LARGEST", 256)


def problems_of(machine: Machine, devices: Any, built: dict[Any, Any], seed: int = DEFAULT_SEED) -> list[str]:
    """What the checks say of the machine and should not, and the other way round."""
    from harness.checks.registry import SUITE
    from harness.devices.described.reading import read_description
    from harness.devices.described.state import gpus_of
    from harness.devices.device import Devices
    from harness.hardware.real import TensorFlowMachine
    from harness.records import overall
    from harness.softgpu import switch

    lines = f"{MEMORY}\n{machine.lines}"
    made = read_description("test.toml", text(machine.cards, machine.model, *machine.faults, cards=lines))
    gpus = gpus_of(made, "test.toml")
    switch(gpus)
    mine = [replace(each, kind=machine.kind) for each in list(devices)[: gpus.count]]
    there = Devices(mine, spec="softgpu:test.toml", reason="")
    findings: list[Finding] = []
    verdicts = []
    on = TensorFlowMachine(there)
    on._built = built  # the graphs of the operations: the devices are the same
    for check in SUITE.select(machine.checks.split()):
        result = check.run(CheckContext(there, seed=seed, level=machine.level, machine=on))
        verdicts.append(result.verdict)
        findings += result.findings
    problems = []
    if (named := blamed(on, findings)) != machine.who:
        problems.append(f"named {named}, and should have named {machine.who}: {[each.message for each in findings]}")
    if overall(verdicts) is not machine.verdict:
        problems.append(f"{[str(each) for each in verdicts]} in the place of {machine.verdict}")
    if machine.faults:
        problems += wrong_actions(on, findings, machine.faults)
    if machine.who and not all(each.next_step for each in findings):
        problems.append("a finding without a next step")
    return [f"{machine.cards} {machine.model} {list(machine.faults)} {machine.checks}: {each}" for each in problems]


def every_machine() -> None:
    """Run all machines in this process, or those with a fault that has the text of ``HARNESS_ONLY_FAULT`` in it."""
    import gc
    import os
    import time
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import pytest

    import harness

    only = os.environ.get("HARNESS_ONLY_FAULT", "")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        spend_little(patch)
        path = Path(folder) / "machine.toml"
        path.write_text(text(DEVICES, H100, cards=MEMORY), encoding="utf-8")
        devices = harness.configure(f"softgpu:{path}")
        built: dict[Any, Any] = {}
        problems = []
        for machine in all_machines():
            if only and not any(only in fault for fault in machine.faults):
                continue
            began = time.monotonic()
            try:
                problems += problems_of(machine, devices, built)
            except Exception as error:  # noqa: BLE001 - the other machines are tested all the same
                problems.append(f"{machine}: {type(error).__name__}: {str(error)[:300]}")
            gc.collect()  # what the machine before holds, the next one cannot have
            print(f"{time.monotonic() - began:.1f} s {machine.cards} {machine.faults} {machine.checks}", flush=True)
        assert not problems, "\n".join(problems)
