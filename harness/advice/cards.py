"""Cards that are named, such as ``h100-sxm:8``, and that this machine need not have: their rates, as far as known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from harness.advice.step_time import Link, Machine, Rates, Task, step_seconds
from harness.errors import UsageError
from harness.hardware.card_profile import CardProfile
from harness.hardware.profile import load_hardware_profile, profile_files
from harness.speed.record import Interval

#: Shares that good software reaches, least, middle and most, where the profile has none: of a link's rate, with the
#: 40 % of NVLink that NCCL's bus bandwidth reaches at least on sound machines (docs/hardware.md); and of PCIe from
#: memory that is not pinned, as TensorFlow copies NumPy arrays.
_LINK_SHARES, _HOST_SHARES = (0.4, 0.65, 0.9), (0.08, 0.25, 0.8)
#: Seconds to start a kernel and a copy, least, middle and most: assumptions of the harness. CUDA needs 2 to 5 µs for a
#: launch, and TensorFlow's executor some µs more for each op.
_LAUNCH_S, _COPY_S = (4e-6, 9e-6, 20e-6), (8e-6, 15e-6, 40e-6)
#: The host: what a vector unit and a memory channel or two do for one op. Ways hardly depend on it.
_HOST = Rates({"": 5e10}, 2e10, launch_s=5e-6, view_s=1e-6)
#: Gigabytes per second of a lane, one way, by the generation of PCIe.
_LANE_GB = {3: 0.985, 4: 1.969, 5: 3.938, 6: 7.56}
#: What the model is off by where all rates are measured, as a factor: of 95 in 100 predicted speedups of programs that
#: were held out (1.36 on a quiet machine, 1.57 on a busy one; ``tests/benchmarks/scripts/predicted_speedups.py``).
MODEL_FACTOR = 1.6
_CONFIDENCE = 0.95
#: The figures of a profile that tell the rate of a dtype; for float32 TensorFlow takes TF32 where a card has it.
_DTYPES = {"float32": ("matmul tfloat32", "matmul float32"), "bfloat16": ("matmul bfloat16",)}
_SHAPE = "CARD:N, such as h100-sxm:8"


@dataclass(frozen=True)
class Cards:
    """``count`` cards of one kind. ``name`` is that of the profile's file, ``profiles/hardware/NAME.toml``."""

    name: str
    count: int
    profile: CardProfile

    @classmethod
    def parse(cls, text: str, option: str = "--for") -> Cards:
        """Parse ``CARD:N``. Raise UsageError with what was given, what is accepted, and what to do."""
        from harness.devices.toml_file import did_you_mean

        name, colon, number = text.partition(":")
        profiles = {key: load_hardware_profile(path) for key, path in profile_files().items()}
        names = [key for key, profile in profiles.items() if profile.figure("memory bandwidth")]
        if name not in names:
            accepted = f"{_SHAPE}, with one of these cards: {', '.join(names)}{did_you_mean(name, names)}"
            raise UsageError(f"{option} {text}: there is no profile of a card {name!r}; accepted: {accepted}")
        if not colon:
            raise UsageError(f"{option} {text}: how many cards? accepted: {_SHAPE}; write {name}:1 for one of them")
        if not number.isascii() or not number.isdigit() or not int(number):
            raise UsageError(f"{option} {text}: {number!r} cards; accepted: {_SHAPE}, with N of 1 or more")
        return cls(name, int(number), profiles[name])

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"

    def machine(self, product: int = 1, memory: int = 1, launch: int = 1, links: int = 1) -> Machine:
        """The machine where rates are at the least (0), in the middle (1) or at the most (2) of what cards reach."""
        flops = {
            dtype: 1e9 * self._reached(found, product)
            for dtype in ("float64", "float32", "float16", "bfloat16")
            if (found := next((f for f in _DTYPES.get(dtype, (f"matmul {dtype}",)) if self.profile.figure(f)), ""))
        }
        flops[""] = flops["float32"]
        device = Rates(flops, 1e9 * self._reached("memory bandwidth", memory), _LAUNCH_S[2 - launch], 1e-6)
        lanes, generation = self._value("pcie width", 16.0), self._value("pcie generation", 5.0)
        pcie = 1e9 * lanes * _LANE_GB.get(int(generation), _LANE_GB[5])
        nvlink = 1e9 * self._value("nvlinks", 0.0) * self._value("nvlink rate", 0.0)
        copy_s = _COPY_S[2 - launch]
        return Machine(
            device,
            _HOST,
            between=Link((nvlink or pcie) * _LINK_SHARES[links], start_s=copy_s),
            to_host=Link(pcie * _HOST_SHARES[links], start_s=copy_s),
        )

    def _value(self, figure: str, other: float) -> float:
        found = self.profile.figure(figure)
        return other if found is None else found.value

    def _reached(self, figure: str, level: int) -> float:
        """A rate at its least (``low`` of the profile), at its most (the datasheet), and halfway between."""
        found = self.profile.figure(figure)
        assert found is not None
        return found.value * float(found.low ** (1 - level / 2))

    def predict(self, one: Sequence[Task], other: Sequence[Task]) -> Prediction:
        """Predict the time of a step, and its speedup over the same step on one device."""
        levels = [(1, 1, 1, 1), *itertools.product((0, 2), repeat=4)]
        machines = [self.machine(*each) for each in levels]
        single = [step_seconds(one, machine) for machine in machines]
        times = single if other is one else [step_seconds(other, machine) for machine in machines]
        ratios = [a / b for a, b in zip(single, times, strict=True)]
        low, high = min(ratios) / MODEL_FACTOR, max(ratios) * MODEL_FACTOR
        return Prediction(
            times[0] * 1e9,
            (min(times) * 1e9 / MODEL_FACTOR, max(times) * 1e9 * MODEL_FACTOR),
            Interval(ratios[0], low, high, _CONFIDENCE),
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time of a step with its interval, in ns, and its speedup over one device."""

    time_ns: float
    interval_ns: tuple[float, float]
    speedup: Interval
