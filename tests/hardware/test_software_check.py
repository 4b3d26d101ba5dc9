"""The check ``software``: each thing that does not fit beside a machine where it does."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_machine import CPU_SOFTWARE, NumpyMachine, context, cpus, gpus, with_software, wrong_element

from harness.hardware.software.check import CHECK
from harness.records import CheckResult, Verdict

TWO = gpus(2)


def _run(machine: NumpyMachine) -> CheckResult:
    return CHECK.run(context(machine))


@pytest.mark.parametrize(
    "machine",
    [
        NumpyMachine(TWO),
        NumpyMachine(gpus(2, "NVIDIA A10", "8.6")),
        NumpyMachine(TWO, facts=with_software(driver=None)),
        NumpyMachine(TWO, facts=with_software(driver="580.65.06", driver_cuda="13.0")),
        NumpyMachine(TWO, facts=with_software(missing_libraries=("libnvinfer.so.10",))),
        NumpyMachine(cpus(2), facts=CPU_SOFTWARE),
        NumpyMachine(cpus(2), facts=with_software(missing_libraries=("libcuda.so.1",), driver=None, cudnn=None)),
    ],
    ids=["code", "code of a lower minor", "driver unknown", "newer driver", "no TensorRT", "CPU build", "CUDA build"],
)
def test_what_fits_passes_and_rests_on_comparisons_and_on_an_op_on_each_card(machine: NumpyMachine) -> None:
    outcome = _run(machine)
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ()), outcome.reason
    assert outcome.exercised.ops == len(machine.cards)
    assert outcome.exercised.values >= 3 + 256 * len(machine.cards)
    assert set(outcome.exercised.devices) == {card.device for card in machine.cards}
    said = " ".join(outcome.scope)
    for text in ("Python 3.11.4", "NumPy 2.2.0", "oneDNN on", "TF32"):
        assert text in said


#: What is wrong, the verdict, what the finding speaks of, and what the next step says.
WRONG: dict[str, tuple[dict[str, Any], Verdict, str, str]] = {
    "driver too old": (
        {"driver": "470.57.02"},
        Verdict.FAIL,
        "470.57.02 is too old: this TensorFlow was built for CUDA 12.5.1",
        "525.60.13",
    ),
    "driver for an older CUDA": (
        {"driver": None, "driver_cuda": "11.4"},
        Verdict.FAIL,
        "supports CUDA 11.4",
        "install NVIDIA driver 525.60.13",
    ),
    "library missing": (
        {"missing_libraries": ("libcudnn.so.9",), "cudnn": None},
        Verdict.FAIL,
        "could not load libcudnn.so.9",
        "python -m pip install 'tensorflow[and-cuda]==2.21.0'",
    ),
    "no driver library": ({"missing_libraries": ("libcuda.so.1",)}, Verdict.FAIL, "libcuda.so.1", "--gpus all"),
    "cuDNN too old": ({"cudnn": "9.1.0"}, Verdict.FAIL, "cuDNN 9.1.0 is loaded", "tensorflow[and-cuda]"),
    "cuDNN of another major version": ({"cudnn": "10.0"}, Verdict.FAIL, "cuDNN 10.0 is loaded", "LD_LIBRARY_PATH"),
    "NCCL of another time": ({"nccl": "1.3"}, Verdict.FAIL, "NCCL 1.3", "tensorflow[and-cuda]"),
    "built without CUDA": (
        {"built_with_cuda": False},
        Verdict.FAIL,
        "built without CUDA",
        "python -m pip install 'tensorflow[and-cuda]'",
    ),
    "no kernels": ({"kernels_sass": ("6.0", "9.0"), "kernels_ptx": ("9.0",)}, Verdict.FAIL, "no kernels", "GPU:0"),
    "PTX that the driver cannot compile": (
        {"kernels_sass": ("6.0",), "kernels_ptx": ("8.0",), "driver": "535.54.03"},
        Verdict.FAIL,
        "cannot do",
        "555.42.02",
    ),
    "kernels unknown": ({"kernels_sass": (), "kernels_ptx": ()}, Verdict.UNKNOWN, "which kernels", ""),
    "driver unknown": (
        {"driver": None, "driver_cuda": None},
        Verdict.UNKNOWN,
        "driver version",
        "nvidia-ml-py",
    ),
    "another TensorFlow": ({"tensorflow": "2.18.1"}, Verdict.WARN, "TensorFlow 2.18.1", "2.19"),
    "a Python of the future": ({"python": "3.14.0"}, Verdict.WARN, "Python 3.14.0", "3.10"),
    "NumPy too old": ({"numpy": "1.24.3"}, Verdict.FAIL, "NumPy 1.24.3", "numpy>=1.26"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named_with_its_cure(what: str) -> None:
    facts, verdict, said, step = WRONG[what]
    outcome = _run(NumpyMachine(TWO, facts=with_software(**facts)))
    assert outcome.verdict is verdict, outcome.findings
    assert {finding.kind for finding in outcome.findings} <= {"software"}
    assert said in outcome.reason
    assert step in outcome.next_step


def test_kernels_that_the_driver_compiles_are_mentioned_once_and_nothing_is_wrong() -> None:
    facts = with_software(kernels_sass=("6.0",), kernels_ptx=("8.0",))
    outcome = _run(NumpyMachine(TWO, facts=facts))
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())
    (said,) = (each for each in outcome.scope if "PTX when it is first used" in each)
    assert said.startswith("GPU:0, GPU:1: ")


def test_the_card_without_kernels_alone_is_named_and_nothing_is_run_there() -> None:
    machine = NumpyMachine((*gpus(1), *gpus(2, "Tesla K80", "3.7")[1:]))
    outcome = _run(machine)
    assert [finding.device for finding in outcome.findings] == [TWO[1].device]
    assert set(machine.ran) == {"GPU:0"}
    assert "no op was run on GPU:1, because none can run there" in outcome.scope


def test_a_card_of_unknown_capability_is_unknown() -> None:
    cards = gpus(1, capability="")
    assert _run(NumpyMachine(cards)).verdict is Verdict.UNKNOWN


def test_a_card_that_multiplies_whole_numbers_wrong_is_named() -> None:
    outcome = _run(NumpyMachine(TWO, change=wrong_element("matmul float32", "GPU:1", 1.0)))
    assert [(finding.kind, finding.device) for finding in outcome.findings] == [("arithmetic", TWO[1].device)]
    assert "GPU:1" in outcome.next_step


def test_nothing_is_right_where_there_is_nothing() -> None:
    assert CHECK.run(context(None)).verdict is Verdict.UNKNOWN
    assert CHECK.run(context(NumpyMachine(()))).verdict is Verdict.UNKNOWN
