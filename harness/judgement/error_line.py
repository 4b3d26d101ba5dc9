"""What a program raised, as one line."""

from __future__ import annotations

import itertools
import re

from harness._tensorflow import lines_of
from harness.devices.device import Device, Devices
from harness.devices.lost import lost_hosts, naming_hosts
from harness.evidence.places import in_users, module_of, place
from harness.judgement.diagnosis.observed import place_of_error
from harness.records import Finding
from harness.runner.users_error import PREAMBLES, message_lines

#: Where TensorFlow was, which says nothing about the user's program, and the bold type of Keras's messages.
_NODE = re.compile(r"\{\{(?!colocation_node)[^{}]*\}\} ?|\x1b\[[\d;]*m")
#: The ops that a message is about.
_NAMED = re.compile(r"\{\{colocation_node ([^{}]*)\}\}")
#: TensorFlow's refusals of an op without a kernel on a GPU, which list all devices and all registered kernels.
_WITHOUT_KERNEL = (
    re.compile(
        r"Cannot assign a device for operation (?P<name>\S+): .*?device:(?P<device>GPU:\d+)' because no supported "
        r"kernel for GPU devices is available.*\bOp: (?P<type>\w+)"
    ),
    re.compile(
        r"(?P<name>)device specification '\S*device:(?P<device>GPU:\d+)'\. enable_soft_placement=0\. Supported device "
        r"types (?!\[[^]]*\bGPU\b)\[.*device:(?P=device)\b.*\[Op:(?P<type>\w+)\]"
    ),
)
#: One of several ops that failed in a graph, and lines that only tell the graph's own names.
_ROOT = re.compile(r"\(\d+\)\s+[A-Z_]+:\s+")
_GRAPH_ONLY = ("[[", "0 successful operations", "0 derived errors")
#: The function that was called.
_GRAPH = re.compile(r"\[Op:(__inference_\w+)\]")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: A function that returns a variable out of a loop on another device, for the gradient of the loop.
_LOOP_GRADIENT = re.compile(
    r"Cannot place the graph because a reference or resource edge .*dst node is name='\S*while\S*_RetVal'"
    r"|Cannot colocate nodes .*Cannot merge devices .*__forward_"
)
#: A scope that names a GPU that the process does not have, in a graph and in eager code.
_ABSENT_GPU = re.compile(
    r"explicitly assigned to \S*device:(GPU:(\d+)) but available devices are|"
    r"satisfy device specification '\S*device:(GPU:(\d+))'\. enable_soft_placement=0"
)
#: What XLA compiles, on another device than a variable that it reads.
_XLA_VARIABLE = re.compile(
    r"Trying to access resource (\S+?)(?:/\d+)? .*located in device \S*device:(\w+:\d+) from device \S*device:(\w+:\d+)"
)
#: A graph that makes a tensor on a DTensor mesh, called where no mesh is the default one.
_NO_MESH = re.compile(r"Unable to find any devices for spec \S*device:CUSTOM:\d+")
#: The longest text of another error that is given in full, and how much of a longer one: its start and its end.
_LONGEST, _START, _END = 600, 200, 400


def error_line(error: BaseException) -> str:
    """The type and the message of an error, shortened where it is long."""
    text = " ".join(_NAMED.sub(r"\1", _NODE.sub("", str(error))).split())
    for pattern in _WITHOUT_KERNEL:
        if found := pattern.search(text):
            text = _without_kernel(**found.groupdict())
            break
    else:
        text = _own_message(error, text)
    if _LOOP_GRADIENT.search(text) or _LOOP_GRADIENT.search(" ".join(str(error).split())):
        text = (
            "TensorFlow cannot take the gradient of a tf.function whose loop runs on one device and reads a variable "
            "on another; use harness.colocate_gradients(), or read the variable before the loop"
        )
    if found := _XLA_VARIABLE.search(text):
        text = (
            f"XLA cannot read a variable of another device: {found[1]} is on {found[2]}, but the compiled function "
            f"runs on {found[3]}; create the variable on {found[3]}, or switch XLA off if you switched it on "
            "(Keras always compiles grouped convolutions with XLA)"
        )
    if (found := _ABSENT_GPU.search(text)) and not re.search(rf"{found[1] or found[3]}\b", text[found.end() :]):
        name, number = found[1] or found[3], int(found[2] or found[4])
        spec = f"softgpu:{max(number + 1, 2)}"
        text = (
            f"a scope names {name}, which this process does not have; give it software GPUs with "
            f"--harness-devices={spec} or harness.configure({spec!r}), or take the names of scopes from the devices"
        )
    if _NO_MESH.search(text):
        text = "a tf.function cannot copy tensors to a DTensor mesh; verify the program with modes=('eager',)"
    # TensorFlow says why at the end, after how it got there.
    shown = text if len(text) <= _LONGEST else f"{text[:_START]} … {text[-_END:]}"
    return f"{type(error).__name__}: {shown}"


def error_finding(error: Exception, where: str, mode: str, devices: Devices) -> Finding:
    """The finding that a program raised; of a lost host, with its device."""
    place = place_of_raised(error)
    notes = "; ".join(getattr(error, "__notes__", ()))
    tasks = [f"{each.host.task_name}/" for each in lost_hosts()]
    of_one = [device.name for device in devices if len(tasks) == 1 and device.name.startswith(tasks[0])]
    message = naming_hosts(error_line(error), error) + (f" {notes}" if notes else "") + (f" ({place})" if place else "")
    return Finding("error", where, of_one[0] if of_one else None, "a result", type(error).__name__, message, mode=mode)


def _own_message(error: BaseException, whole: str) -> str:
    """The message of the first op that failed, without the way there, which is before it or around it."""
    if not whole.startswith(PREAMBLES):
        return whole
    lines = message_lines(error)
    if lines and (first := _ROOT.match(lines[0])):
        rest = itertools.takewhile(lambda line: not _ROOT.match(line), lines[1:])
        lines = [lines[0][first.end() :], *rest]
    text = " ".join(line for line in lines if not line.startswith(_GRAPH_ONLY))
    return " ".join(text.split())


def place_in_message(error: BaseException) -> str | None:
    """``file.py:12`` of the user's line that TensorFlow names in the message of an error in a graph."""
    if not str(error).startswith(PREAMBLES):
        return None
    found = [(file, int(line)) for file, line in _FRAME.findall(str(error))]
    return next((place(file, line) for file, line in reversed(found) if in_users(module_of(file), file)), None)


def place_of_raised(error: BaseException) -> str | None:
    """The user's line that raised an error, or that made the op of a graph that raised it."""
    return place_in_message(error) or _place_of_node(error) or place_of_error(error)


def add_raised(undecided: list[str], error: BaseException, mode: str, *, both: bool, own: Device | None) -> None:
    """Add to what could not be judged that the reference raised: on device ``own``, if it is the program itself.

    ``both`` says whether the program under test raised the same. A line that raises in both modes is reported once.
    """
    who = "both programs" if both else "the reference"
    if own is not None:
        who = "the program" if both else f"the program, on {own.parsed.short} alone,"
    at = place_of_raised(error)
    told = f" ({at}, " if at is not None else f" raised {type(error).__name__}: "
    if not any(each.startswith(f"{who} raised ") and told in each for each in undecided):
        undecided.append(f"{who} raised {error_line(error)} ({mode if at is None else f'{at}, {mode}'})")


def _place_of_node(error: BaseException) -> str | None:
    """``file.py:12`` of the user's line that made the op of a graph for which there is no kernel."""
    text = " ".join(str(error).split())
    found, graph = _WITHOUT_KERNEL[0].search(text), _GRAPH.search(text)
    if found is None or graph is None:
        return None
    frames = lines_of(graph[1]).get(found["name"], ())
    return next((place(file, line) for file, line, _ in frames if in_users(module_of(file), file)), None)


def _without_kernel(name: str, device: str, type: str) -> str:  # noqa: A002 - named as in the patterns
    op = f"{type} ({name})" if name not in ("", type) else type
    vectorised = "take the derivative with experimental_use_pfor=False, " if "/pfor/" in name else ""
    return (
        f"TensorFlow has no kernel on {device} for {op} and its types; {vectorised}run the op in a CPU scope, or "
        "allow soft placement with tf.config.set_soft_device_placement(True)"
    )
