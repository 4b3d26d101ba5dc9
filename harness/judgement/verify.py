"""``harness.verify``: does a program match its single-device run, and did each op run where it should?"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np

from harness import session
from harness.devices.device import Device, Devices
from harness.devices.name import DeviceName
from harness.devices.runtime import current
from harness.errors import DevicesUnavailable, UsageError, VerificationError
from harness.evidence.places import place_of_call
from harness.judgement.accepted import Acceptance, known_acceptances
from harness.judgement.drawing import numbers_kept
from harness.judgement.other_numbers import looked_again
from harness.judgement.patterns import PATTERNS
from harness.judgement.progress import Progress
from harness.judgement.proving import proved
from harness.judgement.runs import MODES, Mode
from harness.judgement.saved_case import SavedCase, is_folder_name, size_bytes
from harness.judgement.shrinking import Programs, known_maker, smallest
from harness.judgement.state import distinct
from harness.judgement.verdict import conclude
from harness.judgement.verification import Verification
from harness.lazy import tf
from harness.parallel.one_device import on_first_device
from harness.records import Verdict
from harness.session import observed

_Given = ParamSpec("_Given")
#: One program is verified at a time: a trace sees the ops of all threads. Calls in other threads wait for their turn.
_turn = threading.RLock()
#: Tell functions whose body does not run when they are called.
_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def verify(
    parallel: Callable[..., Any],
    reference: Callable[..., Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    *,
    devices: Sequence[Device] | None = None,
    variables: Iterable[Any] = (),
    gradients: bool | None = None,
    modes: Sequence[str] = ("eager", "graph"),
    oracle: Callable[..., Any] | None = None,
    exact: bool | None = None,
    pattern: str | None = None,
    accept: Sequence[Acceptance] = (),
    prove: bool | str | None = None,
    seed: int = 0,
    shrink: bool | Callable[[Devices], Callable[..., Any]] = False,
    save: str | Path | None = None,
) -> Verification:
    """Run ``parallel`` and ``reference`` on the same inputs; compare values and gradients, and judge where each op ran.

    Args:
        parallel: the program that uses several devices, a callable over ``**inputs``. It runs outside of any device
            scope and is traced.
        reference: the single-device program, a callable over ``**inputs``. It runs in the scope of ``devices[0]``.
            ``None``: ``parallel`` itself, with the scope of each device replaced by that of ``devices[0]``. That shows
            where ops run, and that the devices change no value, also of what each tower does by itself on purpose, as
            batch normalization does. It cannot show that the towers compute what one model on the whole batch does.
        inputs: names to arrays, tensors, or nests of them. Other values are passed on unchanged. ``None``: no inputs.
        devices: the devices that the program is meant to use. ``None``: those that ``configure`` has configured.
        variables: the variables that both programs use. Gradients are taken for them, and their values after the call
            are compared, as are those of other variables that both programs use, of those that the reference
            changes in a Keras layer, metric or optimizer of which both use some, and of weights that start with the
            same numbers as weights of the other program, as in two copies of a model. Every run starts from the same
            values.
        gradients: compare and place the gradients of a random projection of the outputs with respect to the floating
            inputs and to ``variables``. ``None``: if there are ``variables`` and ``parallel`` is no step, which takes
            gradients itself, or updates all trainable ones of them and returns nothing for each row. A step is judged
            by its results, its variables, and where its own backward ops ran.
        modes: some of ``"eager"``, ``"graph"`` (in a ``tf.function``), ``"dynamic"`` (in a ``tf.function`` whose
            inputs have an unknown size along axis 0).
        oracle: a NumPy function over ``**inputs`` (float64 for floating inputs) with an independent answer, which shows
            a fault that both programs share.
        exact: whether arithmetic is exact, so that values must be equal to the last bit. ``None``: decide from the ops
            and the values.
        pattern: what may cross between devices: ``"stages"``, tensors to the next device and gradients to the previous
            one; ``"members"``, arguments and results only. ``None``: the value of ``parallel.pattern`` (``pipeline``
            and ``ensemble`` have one); without one, anything.
        accept: pairs of what is accepted, and why: a kind of finding, its code, or a part of its place. Such a finding
            is a warning; one that no longer occurs is reported.
        prove: ``None``: prove, from the graphs that are run, that both programs compute the same for every input
            (``.proof`` of the result): of these shapes, and with the mode ``"dynamic"`` of every batch size. What is
            not proved is tested. ``True``: trace both programs for an unknown batch size to prove it for others.
            ``"required"``: what is not proved fails. ``False``: prove nothing.
        seed: of the random projection.
        shrink: where the verdict is FAIL, look for the fewest rows, devices and outputs that still fail in the same
            way; the reason says what they are. Fewer devices are tried for a program of ``make_parallel``, or where
            ``shrink`` is a function of the devices that makes ``parallel``.
        save: a folder for the case of a FAIL: its inputs, variables and seed, for ``harness replay``.

    Returns:
        The verdict, the findings, what was exercised, each comparison with its tolerance, and the trace of each mode.

    Calls in several threads take turns. A trace sees the ops of all threads, so no other thread may run some meanwhile.

    Examples:
        >>> found = harness.verify(step, inputs={"x": x})  # the step itself, on its first device, is the reference
        >>> print(found)
        >>> harness.verify(harness.make_parallel(model, devices), model, {"x": x}).passed
        True

    Raises:
        UsageError: an argument is invalid.
        DevicesUnavailable: one of ``devices`` is unavailable.
    """
    from harness.judgement.examine import Examination

    known = _known_devices(devices)
    chosen = _known_modes(modes)
    inputs = {} if inputs is None else inputs
    if reference is None and callable(parallel):
        reference = on_first_device(parallel, known)
    for name, fn in (("parallel", parallel), ("reference", reference)):
        if not callable(fn):
            raise UsageError(
                f"{name}={fn!r} is not callable; give a function that takes the inputs as keyword arguments"
            )
        bodies: tuple[Any, Any] = (fn, type(fn).__call__)
        if any(is_later(body) for is_later in _LATER for body in bodies):
            raise UsageError(
                f"{name}={fn!r} is a generator or async function, whose body runs after the call; give a function that "
                "returns its results"
            )
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"inputs= is of type {type(inputs).__name__}; accepted: a mapping of argument names to arrays or "
            "nests of arrays"
        )
    if not isinstance(variables, Iterable) or hasattr(variables, "assign"):
        raise UsageError(f"variables={variables!r}; accepted: a sequence of tf.Variable")
    used = distinct(variables)
    if others := [each for each in used if not hasattr(each, "assign")]:
        kind = type(others[0]).__name__
        raise UsageError(f"variables= contains an object of type {kind}; accepted: a sequence of tf.Variable")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise UsageError(f"seed={seed!r}; accepted: an integer, 0 or more")
    for name, choice in (("gradients", gradients), ("exact", exact)):
        if choice is not None and not isinstance(choice, (bool, np.bool_)):
            raise UsageError(f"{name}={choice!r}; accepted: True, False or None")
    if prove not in (None, True, False, "required"):
        raise UsageError(f"prove={prove!r}; accepted: None, True, False or 'required'")
    if save is not None and not is_folder_name(save):
        raise UsageError(f"save={save!r}; accepted: the path of a folder")
    if oracle is not None and not callable(oracle):
        raise UsageError(
            f"oracle={oracle!r} is not callable; give a NumPy function that takes the inputs as keyword arguments"
        )
    with _turn:
        given = _on_host(inputs, known.host)
        case = SavedCase.wanted(place_of_call())
        if case is not None:
            given, seed, chosen = case.put_in(given, used), case.seed, _known_modes(case.modes)
        programs = Programs(parallel, reference, given, known)
        maker = known_maker(shrink, parallel)
        acceptances = known_acceptances(accept)
        cases, size = session.cases, 0 if session.cases is None else size_bytes(given, used)
        kept = cases is not None and (cases.most_bytes is None or size <= cases.most_bytes)
        before = [variable.numpy() for variable in used] if kept or save is not None else []

        def judged(
            programs: Programs, modes: Sequence[Mode], progress: Callable[[str], None], *, again: bool = True
        ) -> Verification:
            examination = Examination(
                parallel=programs.parallel,
                reference=programs.reference,
                inputs=programs.inputs,
                devices=programs.devices,
                variables=used,
                gradients=gradients,
                oracle=oracle if again else None,
                exact=exact,
                pattern=_known_pattern(pattern, parallel),
                seed=seed,
                progress=progress,
                maker=maker,
            )
            for mode in modes:
                examination.run(mode)
            proof = None
            if prove is not False and again:
                progress("proving")
                proof, needless = proved(examination, any_batch=bool(prove))
                examination.judged.findings.extend(needless)
                if prove is None and hasattr(programs.reference, "is_first_device_run"):
                    proof = None  # that a program equals itself needs none
            progress("looking for causes")
            found = conclude(examination, acceptances, session.accept, proof, required=prove == "required" and again)
            if not again:
                return found

            def with_others(inputs: Mapping[str, Any], mode: Mode) -> Verification:
                progress(f"running with other numbers, {mode}")
                return judged(replace(programs, inputs=inputs), [mode], progress, again=False)

            return looked_again(found, examination, proof, with_others)

        around = numbers_kept() if hasattr(reference, "is_first_device_run") else nullcontext()
        with around, Progress() as progress:
            verification = judged(programs, chosen, progress)
            if shrink and verification.verdict is Verdict.FAIL:
                progress("looking for a smaller case")
                less = smallest(
                    verification, programs, maker, lambda case, mode: judged(case, _known_modes([mode]), lambda _: None)
                )
                reason = verification.reason.rstrip(".")
                smaller = f"The program still fails with {less}" if less else "No smaller case fails in the same way"
                verification = replace(verification, reason=f"{reason}. {smaller}")
        if (save is not None or cases is not None) and case is None and verification.verdict is Verdict.FAIL:
            place, reason, failed = place_of_call() or "", verification.reason, None
            if kept or save is not None:
                failed = SavedCase.of(programs.inputs, before, seed, chosen, known.spec, place, reason)
            if failed is not None and save is not None:
                verification = replace(verification, reason=f"{reason.rstrip('.')}. {failed.kept_in(Path(save))}")
            elif cases is not None:
                cases.keep(failed, size)
        return observed(verification)


def _like(
    other: Callable[_Given, Verification],
) -> Callable[[Callable[..., Verification]], Callable[_Given, Verification]]:
    """Give a function the signature of another one, for editors and ``help`` too."""

    def signed(function: Callable[..., Verification]) -> Callable[_Given, Verification]:
        function.__signature__ = inspect.signature(other)  # type: ignore[attr-defined]
        return function

    return signed


@_like(verify)
def assert_parallel(*args: Any, **kwargs: Any) -> Verification:
    """:func:`verify` with the same arguments; raises unless it passes.

    Examples:
        >>> harness.assert_parallel(harness.make_parallel(model, devices), model, {"x": x}, gradients=True)

    Raises:
        VerificationError: with every finding, one line each, and the way to replay it.
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    verification = verify(*args, **kwargs)
    if verification.passed:
        return verification
    lines = [f"{verification.verdict}: {verification.reason}"]
    lines.extend(f"  {line}" for line in verification.lines())
    lines.append(f"  exercised: {verification.exercised}")
    raise VerificationError("\n".join(lines), verification.findings, verification)


def _known_devices(devices: Sequence[Device] | None) -> Devices:
    devices = current() if devices is None else devices
    if devices is None:
        raise UsageError("devices=None, but none are configured; call harness.configure first, or give its result")
    known = Devices.given(devices, UsageError)
    # TensorFlow lists local devices by a short name, such as /device:CPU:1.
    available = [device.name for device in tf.config.list_logical_devices()]
    listed = [DeviceName.parse(name) for name in available]
    absent = [device.name for device in known if not any(device.parsed.matches(name) for name in listed)]
    if absent:
        raise DevicesUnavailable(known.spec or "devices", ", ".join(absent), available)
    return known


def _known_modes(modes: Sequence[str]) -> list[Mode]:
    given = isinstance(modes, Iterable) and not isinstance(modes, str) and modes
    if not given or any(mode not in MODES for mode in modes):
        raise UsageError(f"modes={modes!r}; accepted: a sequence of one or more of {', '.join(map(repr, MODES))}")
    return [mode for mode in MODES if mode in modes]


def _known_pattern(pattern: str | None, parallel: Callable[..., Any]) -> str | None:
    if pattern is None:
        own = getattr(parallel, "pattern", None)
        return own if own in PATTERNS else None
    if pattern not in PATTERNS:
        raise UsageError(f"pattern={pattern!r}; accepted: {', '.join(map(repr, PATTERNS))}, or None")
    return pattern


def _on_host(inputs: Mapping[str, Any], host: str) -> dict[str, Any]:
    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, (np.ndarray, np.generic, float)) and np.asarray(leaf).dtype != object:
            return tf.constant(leaf)
        return leaf

    with tf.device(host):
        return {str(name): tf.nest.map_structure(tensor, value) for name, value in inputs.items()}
