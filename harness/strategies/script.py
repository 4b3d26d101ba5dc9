"""Verifies one program, and writes a script that repeats the verification."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from harness.devices.device import Devices
from harness.errors import UsageError, VerificationError
from harness.strategies.build import build
from harness.strategies.definition import Definition

if TYPE_CHECKING:
    from harness.judgement.verification import Verification

_TEMPLATE = '''\
"""Verifies one generated program. Exits with 0 if it passes, and with 1 and the findings if it does not."""

import sys

import harness
from harness.devices.device import Devices
{make_parallel_import}from harness.strategies import {names}

program = {program}

if __name__ == "__main__":
    devices = {devices}
    built = program.build(devices.host)
    inputs = program.inputs()
    parallel = {make_parallel}(built.fn, devices, axis=program.axis, broadcast=program.broadcast)
    try:
        verification = harness.assert_parallel(
            parallel,
            built.fn,
            inputs,
            devices=devices,
            variables=built.variables,
            gradients=program.differentiable,
            modes={modes},
            exact=program.exact or None,
            seed={seed},
        )
    except harness.VerificationError as error:
        sys.exit(str(error))
    print(verification)
'''


def assert_program(
    program: Definition,
    devices: Devices,
    *,
    make_parallel: Callable[..., Any] | None = None,
    modes: Sequence[str] = ("eager", "graph"),
    seed: int = 0,
) -> Verification:
    """Verify that the program split over ``devices`` matches the program on one: values, gradients and placement.

    Raise VerificationError if it does not pass. The message ends with a script that reproduces the failure.

    Args:
        program: the program, which is run on its own inputs.
        devices: the devices to split it over.
        make_parallel: makes the parallel callable, with the signature of ``harness.make_parallel``, the default.
        modes: as for ``harness.verify``.
        seed: as for ``harness.verify``.
    """
    from harness.judgement.verify import assert_parallel
    from harness.parallel.data import make_parallel as default

    make = default if make_parallel is None else make_parallel
    built = build(program, devices.host)
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
        message = f"{error}\n\n{_reproduction(program, devices, make, modes, seed)}"
        raise VerificationError(message, error.findings, error.verification) from None


def _reproduction(
    program: Definition, devices: Devices, make: Callable[..., Any], modes: Sequence[str], seed: int
) -> str:
    try:
        text = script(program, devices, make_parallel=make, modes=modes, seed=seed)
    except UsageError:
        # A function inside another one: the script lacks only its name.
        text = script(program, devices, modes=modes, seed=seed)
        name = getattr(make, "__qualname__", repr(make))
        todo = f"# {name} cannot be imported: define it in this script, and call it instead of harness.make_parallel."
        text = f"{todo}\n{text}"
    return f"Script that reproduces the failure:\n\n{text}"


def script(
    program: Definition,
    devices: Devices | str = "cpu:4",
    *,
    make_parallel: Callable[..., Any] | str = "harness:make_parallel",
    modes: Sequence[str] = ("eager", "graph"),
    seed: int = 0,
) -> str:
    """Return a Python script that verifies the program and exits with 1 unless it passes.

    Raise UsageError if ``make_parallel`` cannot be imported by name.

    Args:
        program: the program.
        devices: a spec, or devices, which the script then uses in the same order.
        make_parallel: makes the parallel callable, with the signature of ``harness.make_parallel``: a function at the
            top level of a module, or its name as ``"module:function"``, which the script imports.
        modes: as for ``harness.verify``.
        seed: of the projection, as for ``harness.verify``.
    """
    module, function = _address(make_parallel)
    ours = (module, function) == ("harness", "make_parallel")
    text = program_text(program)
    return _TEMPLATE.format(
        make_parallel_import="" if ours else f"from {module} import {function}\n",
        make_parallel="harness.make_parallel" if ours else function,
        names=", ".join(sorted(set(re.findall(r"\b([A-Z]\w+)\(", text)))),
        program=text,
        devices=_devices_text(devices),
        modes=tuple(modes),
        seed=seed,
    )


def program_text(program: Definition) -> str:
    """Return the program as Python, with one part in each line."""
    lines = ["Program("]
    for field in fields(program):
        value = getattr(program, field.name)
        if isinstance(value, tuple) and value:
            lines += [f"    {field.name}=(", *(f"        {part!r}," for part in value), "    ),"]
        elif value != field.default:
            lines.append(f"    {field.name}={value!r},")
    return "\n".join([*lines, ")"])


def _address(make_parallel: Callable[..., Any] | str) -> tuple[str, str]:
    if isinstance(make_parallel, str):
        address = make_parallel
    else:
        address = f"{getattr(make_parallel, '__module__', '')}:{getattr(make_parallel, '__qualname__', '')}"
        if address == "harness.parallel.data:make_parallel":
            address = "harness:make_parallel"
    module, _, function = address.partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
        raise UsageError(
            f"make_parallel={address!r}; accepted: 'module:function', or a function at a module's top level"
        )
    return module, function


def _devices_text(devices: Devices | str) -> str:
    if isinstance(devices, str):
        return f"harness.configure({devices!r})"
    return (
        f"harness.configure({devices.spec!r})\n"
        "    by_name = {device.name: device for device in devices}\n"
        f"    devices = Devices([by_name[name] for name in {list(devices.names)!r}], spec={devices.spec!r}, "
        "host=devices.host)"
    )
