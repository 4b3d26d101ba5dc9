"""The form of a profile file, as Pydantic models. Loaded only when a profile is read."""

from __future__ import annotations

from pydantic import Field

from harness.devices.spec import accepted_specs
from harness.devices.toml_file import Table

#: The current version of the form. Earlier ones stay readable.
SCHEMA_VERSION = 1
#: Of one pool: many times the cores of any machine. More than 2**31 - 1 would not fit into TensorFlow's options.
MOST_THREADS = 65_536
_THREADS = f"an integer from 0 to {MOST_THREADS:,}; with 0, TensorFlow chooses"


class MemoryTable(Table):
    """``[memory]``: for real GPUs. Each field's description says what is accepted."""

    growth: bool | None = Field(default=None, description="true or false")
    limit_mib: int | None = Field(default=None, ge=1, description="an integer of 1 or more, in MiB")


class ThreadsTable(Table):
    """``[threads]``: sizes of TensorFlow's thread pools."""

    intra_op: int | None = Field(default=None, ge=0, le=MOST_THREADS, description=_THREADS)
    inter_op: int | None = Field(default=None, ge=0, le=MOST_THREADS, description=_THREADS)


class ProfileDocument(Table):
    """A whole profile file."""

    # Not a Literal: that would take true for 1.
    schema_version: int = Field(ge=1, le=SCHEMA_VERSION, description=str(SCHEMA_VERSION))
    description: str = Field(default="", description="a string")
    spec: str = Field(description=f"a string: {accepted_specs(in_profile=True)}")
    memory: MemoryTable = Field(default_factory=MemoryTable, description="a table with the key growth or limit_mib")
    threads: ThreadsTable = Field(
        default_factory=ThreadsTable, description="a table with the keys intra_op and inter_op"
    )
    determinism: bool = Field(default=False, description="true or false")
    tf32: bool | None = Field(default=None, description="true or false")
    soft_placement: bool = Field(default=False, description="true or false")
