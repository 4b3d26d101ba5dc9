"""Verifies one program, and says how to run it again where it fails."""

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
    """Verify that the program split over ``devices`` is the program on one device, values, gradients and places.

    Args:
        program: what to verify, on its own inputs.
        devices: the devices that it is split over.
        make_parallel: what makes the parallel callable, called as ``harness.make_parallel`` is, which is the default.
        modes: as for ``harness.verify``.
        seed: as for ``harness.verify``.

    Raises:
        VerificationError: it does not pass. The message ends with a script of its own that shows the same.
    """
    from harness.judgement.verify import assert_parallel
    from harness.parallel.data import make_parallel as usual

    make = usual if make_parallel is None else make_parallel
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
        # A function inside another one. The script is as good as it can be: all of it but the one name.
        text = program.script(devices, modes=modes, seed=seed)
        name = getattr(make, "__qualname__", repr(make))
        text = f"# Put {name}, which cannot be imported, in the place of harness.make_parallel.\n{text}"
    return f"The same as a script:\n\n{text}"
