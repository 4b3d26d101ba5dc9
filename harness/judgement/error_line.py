"""What a program raised, as one line."""

from __future__ import annotations

import re

#: Where TensorFlow was, which says nothing about the user's program.
_NODE = re.compile(r"\{\{[^{}]*\}\} ?")
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
#: A function that returns a variable out of a loop on another device, for the gradient of the loop.
_LOOP_GRADIENT = re.compile(
    r"Cannot place the graph because a reference or resource edge .*dst node is name='\S*while\S*_RetVal'"
    r"|Cannot colocate nodes .*Cannot merge devices .*__forward_"
)
#: A graph that makes a tensor on a DTensor mesh, called where no mesh is the default one.
_NO_MESH = re.compile(r"Unable to find any devices for spec \S*device:CUSTOM:\d+")
#: The longest text of another error that is given in full, and how much of a longer one: its start and its end.
_LONGEST, _START, _END = 600, 200, 400


def error_line(error: BaseException) -> str:
    """The type and the message of an error, shortened where it is long."""
    text = " ".join(_NODE.sub("", str(error)).split())
    for pattern in _WITHOUT_KERNEL:
        if found := pattern.search(text):
            text = _without_kernel(**found.groupdict())
            break
    if _LOOP_GRADIENT.search(text):
        text = (
            "TensorFlow cannot take the gradient of a tf.function whose loop is on another device than a variable that "
            "it reads; use harness.colocate_gradients(), or read the variable before the loop"
        )
    if _NO_MESH.search(text):
        text = "a tf.function cannot copy tensors to a DTensor mesh; verify the program with modes=('eager',)"
    # TensorFlow says why at the end, after how it got there.
    shown = text if len(text) <= _LONGEST else f"{text[:_START]} … {text[-_END:]}"
    return f"{type(error).__name__}: {shown}"


def _without_kernel(name: str, device: str, type: str) -> str:  # noqa: A002 - named as in the patterns
    op = f"{type} ({name})" if name not in ("", type) else type
    vectorised = "take the derivative with experimental_use_pfor=False, " if "/pfor/" in name else ""
    return (
        f"TensorFlow has no kernel on {device} for {op} and its types; {vectorised}run it in a scope of the CPU, or "
        "allow soft placement with tf.config.set_soft_device_placement(True)"
    )
