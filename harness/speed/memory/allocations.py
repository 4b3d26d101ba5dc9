"""Has TensorFlow's profiler record each buffer that the CPUs' allocator gives out and takes back.

The allocator tells the profiler only where its statistics are on, and no function of Python's turns them on. The C++
function that does is exported by TensorFlow's library, under its mangled name. (The statistics themselves stay 0 in the
wheel: its malloc does not tell the size of a buffer.)
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from harness.errors import TensorFlowInterfaceChanged
from harness.lazy import tf

#: tsl::EnableCPUAllocatorStats() and tsl::DisableCPUAllocatorStats().
_ENABLE, _DISABLE = "_ZN3tsl23EnableCPUAllocatorStatsEv", "_ZN3tsl24DisableCPUAllocatorStatsEv"


def record_cpu_allocations(on: bool) -> None:
    """Have the profiler record the allocations of CPUs, or no longer.

    Raises:
        TensorFlowInterfaceChanged: TensorFlow's library has no such function.
    """
    folder, library = (flag[2:].lstrip(":") for flag in tf.sysconfig.get_link_flags()[:2])
    name = _ENABLE if on else _DISABLE
    try:
        getattr(ctypes.CDLL(str(Path(folder, library))), name)()
    except (AttributeError, OSError) as error:
        raise TensorFlowInterfaceChanged(name, f"a function in {library}", "none") from error
