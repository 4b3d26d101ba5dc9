"""A TensorFlow server on one CPU core: the program that :mod:`harness.devices.servers` runs once for each device.

    python -I -S core_server.py CPU LIBRARY PARENT

It needs no more than Python's own library and TensorFlow's C interface (``tensorflow/c/c_api.h``), so that it is there
in a second: importing TensorFlow for Python would take as long again as it does for its client. It writes the address
of the server to stdout, and everything that TensorFlow says to stderr.

It never outlives its parent, and two things tell it: stdin is a pipe that the parent keeps open, and ends with it; and
the id of its parent changes, also where another child of the parent has inherited the pipe. (``PR_SET_PDEATHSIG`` would
end it with the thread that started it.)
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import runpy
import select
import sys
import threading
from pathlib import Path

#: How often it looks for its parent, in seconds, where the pipe does not tell.
TICK_S = 0.5
#: How long it may take to start, in seconds, where nobody is there to end it.
LAST_RESORT_S = 180.0
#: What the job of the servers is called in the names of their devices.
JOB = "core"


def main() -> None:
    """Serve until the parent is gone."""
    cpu, library, parent = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _close_inherited()
    os.sched_setaffinity(0, {cpu})  # before any thread starts: it is inherited, and set for one thread alone
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # While the library is loaded, Python's lock may be held, and the thread above waits for it.
    faulthandler.dump_traceback_later(LAST_RESORT_S, exit=True)
    server = Server(library, server_definition())
    # Its folder is not on the path, since a random.py there would take the place of Python's own.
    loopback = runpy.run_path(str(Path(__file__).with_name("loopback.py")))
    loopback["restrict_listening"]()  # it does not serve before start()
    server.start()
    os.write(1, f"{server.address()}\n".encode())
    faulthandler.cancel_dump_traceback_later()
    os.dup2(2, 1)
    threading.Event().wait()


def _close_inherited() -> None:
    """Close what the parent's libraries left open for its children: a socket held here would outlive it there."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2:
            with contextlib.suppress(OSError):  # the folder's own descriptor is closed already
                os.close(int(entry.name))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], TICK_S)
        if ready and not os.read(0, 1):
            break
    os._exit(0)


class Server:
    """TensorFlow's server, through its C interface."""

    def __init__(self, library: str, definition: bytes) -> None:
        """Make it, from a serialised ``ServerDef``: it listens, and serves from :meth:`start` on.

        Raises:
            OSError: there is no such library.
            RuntimeError: TensorFlow refuses.
        """
        self._library = ctypes.CDLL(library)
        pointer = ctypes.c_void_p
        for name, result, arguments in (
            ("TF_NewStatus", pointer, []),
            ("TF_GetCode", ctypes.c_int, [pointer]),
            ("TF_Message", ctypes.c_char_p, [pointer]),
            ("TF_NewServer", pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
            ("TF_ServerStart", None, [pointer, pointer]),
            ("TF_ServerTarget", ctypes.c_char_p, [pointer]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._status = self._library.TF_NewStatus()
        self._server = self._library.TF_NewServer(definition, len(definition), self._status)
        self._check()

    def start(self) -> None:
        """Serve, from now on."""
        self._library.TF_ServerStart(self._server, self._status)
        self._check()

    def address(self) -> str:
        """Host and port."""
        target: bytes = self._library.TF_ServerTarget(self._server)
        return target.decode().removeprefix("grpc://")

    def _check(self) -> None:
        if self._library.TF_GetCode(self._status):
            message = self._library.TF_Message(self._status).decode(errors="replace")
            raise RuntimeError(f"TensorFlow's server does not start: {message}")


def server_definition(job: str = JOB, address: str = "127.0.0.1:0", config: bytes | None = None) -> bytes:
    """A serialised ``ServerDef``: alone in its cluster, by default on a port that the kernel picks.

    ``config``: a serialised ``ConfigProto``; by default one thread, and no GPU. Written by hand, so that no protocol
    buffer library has to be loaded. The numbers of the fields are those of ``tensorflow_server.proto``,
    ``cluster.proto`` and ``config.proto``.
    """
    task = number_field(1, 0) + bytes_field(2, address.encode())
    jobs = bytes_field(1, job.encode()) + bytes_field(2, task)
    no_gpu = bytes_field(1, b"GPU") + number_field(2, 0)
    # device_count, intra- and inter-op threads
    one_core = bytes_field(1, no_gpu) + number_field(2, 1) + number_field(5, 1)
    cluster = bytes_field(1, bytes_field(1, jobs))
    own = bytes_field(2, job.encode()) + number_field(3, 0)
    return cluster + own + bytes_field(4, one_core if config is None else config) + bytes_field(5, b"grpc")


def bytes_field(field: int, value: bytes) -> bytes:
    """A field of a protocol buffer that holds a text or a message."""
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def number_field(field: int, value: int) -> bytes:
    """A field of a protocol buffer that holds a number of 0 or more."""
    return bytes([field << 3]) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


if __name__ == "__main__":
    main()
