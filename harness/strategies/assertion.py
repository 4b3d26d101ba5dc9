"""Verifies one program, and prints a script that reproduces a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError, VerificationError

if TYPE_CHECKING:
    from harness.devices.device import Devices
    from harness.judgement.verification import Verification
    from harness.strategies.program import Program


def assert_program(
    program: Program,
    devices: Devices,
    *,
    make_parallel: Callable[..., Any] | None = None,
    modes: Sequence[str] = ("eager", "graph"),
    seed: int = 0,
) -> Verification:
    """Verify that the program split over ``devices`` matches the program on one: values, gradients and placement.

    Args:
        program: the program, which is run on its own inputs.
        devices: the devices to split it over.
        make_parallel: makes the parallel callable, with the signature of ``harness.make_parallel``, the default.
        modes: as for ``harness.verify``.
        seed: as for ``harness.verify``.

    Raises:
        VerificationError: it does not pass. The message ends with a script that reproduces the failure.
    """
    from harness.judgement.verify import assert_parallel
    from harness.parallel.data import make_parallel as default

    make = default if make_parallel is None else make_parallel
    built = program.build(devices.host)
    try:
        return assert_parallel(
            make(built.fn, devices, axis=program.axis, broadcast=program.broadcast),
            built.fn,
            program.inputs(),
            devices=devices,
            variables=built.variables,
            gradients=program.differentiable,
            modes=modes,
            exact=program.exact or None,
            seed=seed,
        )
    except VerificationError as error:
        message = f"{error}\n\n{_script(program, devices, make, modes, seed)}"
        raise VerificationError(message, error.findings, error.verification) from None


def _script(program: Program, devices: Devices, make: Callable[..., Any], modes: Sequence[str], seed: int) -> str:
    try:
        text = program.script(devices, make_parallel=make, modes=modes, seed=seed)
    except UsageError:
        # A function inside another one: the script lacks only its name.
        text = program.script(devices, modes=modes, seed=seed)
        name = getattr(make, "__qualname__", repr(make))
        text = f"# Replace harness.make_parallel by {name}, which cannot be imported.\n{text}"
    return f"Script that reproduces it:\n\n{text}"
