"""Runs made by hand: what the tests of the report render."""

from __future__ import annotations

import math
from dataclasses import replace

from harness.records import (
    Card,
    CheckResult,
    Exercised,
    Figure,
    Finding,
    Fingerprint,
    GpuFacts,
    PlacedOp,
    Placement,
    RunRecord,
    Series,
    Verdict,
    exit_code,
    overall,
)

#: What a user could call an op, a file or a host, to see whether it is shown as it is.
HOSTILE = (
    "<script>alert(1)</script>",
    "]]><b>",
    '"><img src=x onerror=alert(1)>',
    "a\nb\tc",
    "\x1b[31mred\x00\x07",
    "\u202egnp.exe",
    "اسم العملية",
    "{{ 7 * 7 }}",
    "$\\frac{1}{2}$ `code` **bold** [link](http://evil.example)",
    "\ud800 alone",
    "&amp; <!-- --> </style></svg>",
)
_FULL = "/job:localhost/replica:0/task:0/device"


def full(label: str) -> str:
    """TensorFlow's name of a card."""
    return f"{_FULL}:{label}"


def fingerprint(**facts: object) -> Fingerprint:
    values = {
        "tensorflow": "2.21.0",
        "keras": "3.12.0",
        "numpy": "2.3.1",
        "python": "3.11.7",
        "onednn": True,
        "cpu_model": "AMD EPYC 9554",
        "cores_logical": 128,
        "cores_physical": 64,
        "memory_mib": 1_031_000,
        "operating_system": "Linux 6.8",
        **facts,
    }
    return Fingerprint(**values)  # type: ignore[arg-type]


def passed(check: str = "vector-add", **facts: object) -> CheckResult:
    result = CheckResult(
        check,
        Verdict.PASS,
        "the same bits as on one device",
        "",
        Exercised(programs=2, values=300_000, ops=8, devices=(full("CPU:0"), full("CPU:1"))),
        elapsed_s=0.31,
        spec="cpu:2",
        placements=(placement(),),
        replay=f"harness validate --only {check} --devices cpu:2",
    )
    return replace(result, **facts)  # type: ignore[arg-type]


def placement(devices: int = 2, ops: int = 24, program: str = "the program (graph)", kind: str = "CPU") -> Placement:
    roles = ("constant", "forward", "forward", "forward", "gradient", "gradient", "update")
    kinds = ("Const", "MatMul", "Relu", "MatMul", "MatMul", "ReluGrad", "AssignSubVariableOp")
    placed = tuple(
        PlacedOp(
            order,
            f"tower_{order % devices}/{kinds[order % 7]}_{order}",
            kinds[order % 7],
            full(f"{kind}:{order % devices}"),
            roles[order % 7],
        )
        for order in range(ops)
    )
    return Placement(program, placed, ops)


def run(*results: CheckResult, **facts: object) -> RunRecord:
    verdict = overall(result.verdict for result in results)
    record = RunRecord(
        started_at="2017-07-17T12:00:00+00:00",
        harness="0.1.0",
        command=("harness", "validate", "--devices", "cpu:2"),
        spec="cpu:2",
        verdict=verdict,
        exit_code=int(exit_code(verdict)),
        complete=True,
        results=results,
        planned=tuple(result.check for result in results),
        spec_reason="2 logical CPUs, as asked",
        fingerprint=fingerprint(devices=(full("CPU:0"), full("CPU:1")), spec="cpu:2"),
        elapsed_s=12.4,
    )
    return replace(record, **facts)  # type: ignore[arg-type]


def clean() -> RunRecord:
    return run(passed(), passed("matpow"), passed("pipeline"))


def failing() -> RunRecord:
    finding = Finding(
        "gradient-placement",
        "TanhGrad_1",
        full("CPU:0"),
        full("CPU:1"),
        full("CPU:0"),
        "ran beside the tape",
        mode="eager",
    )
    traceback = Finding(
        "error", "check crash", None, "it runs to its end", "Traceback\n  line 1\n" * 30, "raised KeyError"
    )
    return run(
        passed(),
        passed(
            "towers", verdict=Verdict.FAIL, reason="2 findings", next_step="use make_parallel", findings=(finding,) * 2
        ),
        CheckResult(
            "crash", Verdict.FAIL, "raised KeyError", "read the log", Exercised(), (traceback,), log="logs/w1.log"
        ),
        CheckResult(
            "slow", Verdict.WARN, "8 % slower", "watch it", Exercised(values=1), replay="harness validate --only slow"
        ),
        CheckResult("silent", Verdict.UNKNOWN, "no evidence", "use a supported version", Exercised()),
        CheckResult("many", Verdict.SKIP, "needs 8 devices, there: 2", "ask for more devices", Exercised()),
        passed("known", verdict=Verdict.WARN, reason="2 ulp", findings=(finding,), accepted_as="known: ticket 12"),
        passes_again=("pipeline: ticket 7",),
    )


def incomplete() -> RunRecord:
    done = passed()
    return run(done, complete=False, verdict=Verdict.UNKNOWN, exit_code=130, planned=(done.check, "matpow", "pipeline"))


def empty() -> RunRecord:
    return run(complete=False, fingerprint=None, planned=("vector-add",), spec_reason="", exit_code=2)


def eight_cards() -> RunRecord:
    """A described machine: the link of GPU:3 is at x4, GPU:5 is hot, copies from GPU:1 to GPU:3 deliver zeros."""
    cards = tuple(
        Card(
            f"GPU:{index}",
            "NVIDIA H100 80GB HBM3",
            full(f"GPU:{index}"),
            index,
            f"GPU-1b2c3d4e-0000-0000-0000-00000000000{index}",
            f"0000:{0x19 + 0x11 * index:02X}:00.0",
            "9.0",
            85_520_809_984,
            index // 4,
            "h100-sxm",
        )
        for index in range(8)
    )
    labels = [card.label for card in cards]
    zeros = Finding(
        "corruption", "copy GPU:1 → GPU:3, 64 MiB", "GPU:1", "the pattern that was written", "zeros", "all words are 0"
    )
    link = Finding("link", "PCIe of GPU:3", "GPU:3", "x16", "x4", "the link has a quarter of its width under load")
    hot = Finding("sensor", "temperature", "GPU:5", "below 83 C", "91 C", "hot, and slowed down", Verdict.WARN)
    return run(
        _check("software", Verdict.PASS, scope=("driver 570.86, CUDA 12.8, 8 of 8 cards numbered",)),
        _check(
            "copies",
            Verdict.FAIL,
            (zeros,),
            _copies(labels),
            next_step="stop using peer copies on this pair: NCCL_P2P_DISABLE=1",
        ),
        _check(
            "links",
            Verdict.FAIL,
            (link,),
            _links(labels),
            next_step="slot 3 runs at x4: reseat, or look at the BIOS setting",
        ),
        _check("arithmetic", Verdict.PASS, (), _rates(labels), scope=("7 dtypes, 9 operations on 8 cards",)),
        _check("load", Verdict.WARN, (hot,), (), _sensors(labels), next_step="look at the fan of GPU:5"),
        _check("scaling", Verdict.PASS, (), _speedups()),
        _check(
            "data-parallel",
            Verdict.PASS,
            placements=(
                placement(8, 180, "training step (graph)", "GPU"),
                placement(8, 40, "training step (eager)", "GPU"),
            ),
        ),
        cards=cards,
        described=True,
        spec="gpu",
        level="standard",
        command=("harness", "validate", "--fake", "eight.toml", "--level", "standard"),
        spec_reason="8 GPUs, described in eight.toml",
        fingerprint=fingerprint(
            gpus=tuple(GpuFacts(card.name, card.uuid, "9.0", 81_559) for card in cards), driver="570.86", cuda="12.8"
        ),
        elapsed_s=214.2,
    )


def hostile() -> RunRecord:
    """Every text that comes from a user is one that tries to be something else."""
    findings = tuple(Finding("value", text, text, text, text * 40, text) for text in HOSTILE)
    ops = tuple(PlacedOp(order, text, text, text, text) for order, text in enumerate(HOSTILE))
    figures = tuple(Figure(text, 2.0 + order, text, text, None, 8, 2.0, text) for order, text in enumerate(HOSTILE))
    pairs = tuple(
        Figure("copy device-to-device", 2.0 + order, "GB/s", text, "host") for order, text in enumerate(HOSTILE)
    )
    series = tuple(Series(text, text, text, (0.0, 1.0), (1.0, None)) for text in HOSTILE)
    everything = "".join(HOSTILE)
    result = CheckResult(
        everything,
        Verdict.FAIL,
        everything,
        everything,
        Exercised(values=1, devices=HOSTILE),
        findings,
        log=everything,
        figures=figures + pairs,
        series=series,
        placements=(Placement(everything, ops, 99),),
        scope=HOSTILE,
        replay=everything,
    )
    return run(
        result,
        spec=everything,
        command=HOSTILE,
        cards=tuple(Card(text, text, text, 0, text, text, text) for text in HOSTILE),
        fingerprint=fingerprint(cpu_model=everything, gpus=(GpuFacts(everything, everything),), devices=HOSTILE),
        passes_again=HOSTILE,
        planned=(everything, everything + "2"),
        spec_reason=everything,
    )


def many_findings(number: int) -> RunRecord:
    findings = tuple(Finding("value", f"output {index}", "GPU:1", "1", "2", "off by one") for index in range(number))
    return run(passed(verdict=Verdict.FAIL, findings=findings, reason=f"{number} findings"))


def scaled(record: RunRecord, factor: float, device: str) -> RunRecord:
    """``record`` with the figures of one device ``factor`` times as high."""

    def result(each: CheckResult) -> CheckResult:
        figures = (replace(f, value=f.value * factor) if f.device == device else f for f in each.figures)
        return replace(each, figures=tuple(figures))

    return replace(record, results=tuple(map(result, record.results)))


def _check(
    check: str,
    verdict: Verdict,
    findings: tuple[Finding, ...] = (),
    figures: tuple[Figure, ...] = (),
    series: tuple[Series, ...] = (),
    **facts: object,
) -> CheckResult:
    result = CheckResult(
        check,
        verdict,
        findings[0].message if findings else "all is as it should be",
        "",
        Exercised(programs=8, values=1_200_000, ops=640, devices=tuple(full(f"GPU:{index}") for index in range(8))),
        findings,
        31.5,
        figures=figures,
        series=series,
        replay=f"harness validate --fake eight.toml --only {check}",
    )
    return replace(result, **facts)  # type: ignore[arg-type]


def _copies(labels: list[str]) -> tuple[Figure, ...]:
    figures = []
    for size_bytes in (1 << 20, 1 << 28):
        for number, source in enumerate(labels):
            slow = 0.27 if source == "GPU:3" else 1.0
            figures.append(
                Figure("copy host-to-device", 52.1 * slow, "GB/s", "host", source, size_bytes, 55.0, "h100-sxm")
            )
            figures.append(
                Figure("copy device-to-host", 50.3 * slow, "GB/s", source, "host", size_bytes, 55.0, "h100-sxm")
            )
            figures += [
                Figure("copy device-to-device", 371.0 - (number * 7 + other * 3) % 11, "GB/s", source, peer, size_bytes)
                for other, peer in enumerate(labels)
                if peer != source
            ]
    return tuple(figures)


def _links(labels: list[str]) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            "PCIe link width", 4.0 if label == "GPU:3" else 16.0, "lanes", label, None, None, 16.0, "its own maximum"
        )
        for label in labels
    )


def _rates(labels: list[str]) -> tuple[Figure, ...]:
    expected = {
        "matmul float32": 51_000.0,
        "matmul TF32": 378_000.0,
        "matmul bfloat16": 756_000.0,
        "reduction float32": 2_600.0,
    }
    return tuple(
        Figure(name, value * (0.93 - 0.012 * number), "GFLOP/s", label, None, None, value, "profile h100-sxm")
        for name, value in expected.items()
        for number, label in enumerate(labels)
    ) + tuple(Figure("launch latency", 7.5 + number, "us", label) for number, label in enumerate(labels))


def _sensors(labels: list[str]) -> tuple[Series, ...]:
    at_s = tuple(float(second) for second in range(60))
    series = []
    for number, label in enumerate(labels):
        top = 91.0 if label == "GPU:5" else 62.0 + number
        heat = tuple(top - 30.0 * math.exp(-second / 15) if second != 20 else None for second in at_s)
        clock = tuple(1980.0 - (300.0 if label == "GPU:5" and second > 30 else 0.0) for second in at_s)
        series += [Series("temperature", "C", label, at_s, heat), Series("clock", "MHz", label, at_s, clock)]
    return tuple(series)


def _speedups() -> tuple[Figure, ...]:
    return tuple(Figure(f"speedup data-parallel {n} devices", n * 0.97, "x") for n in (1, 2, 4, 8))
