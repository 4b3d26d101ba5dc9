"""The keys of ``[tool.harness]``, and what each accepts."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.devices.toml_file import Table


class AcceptTable(Table):
    """``[[tool.harness.accept]]``: a finding that is accepted in every verification."""

    finding: str = Field(min_length=1, description="a kind, code or place of findings, such as 'H202'")
    reason: str = Field(min_length=1, description="a string that says why")


class HarnessTable(Table):
    """``[tool.harness]``."""

    devices: str | None = Field(default=None, description="a device spec, such as 'cpu:4'")
    level: Literal["quick", "standard", "deep"] | None = Field(default=None, description="quick, standard, deep")
    report: str | None = Field(default=None, description="the path of a folder")
    threshold: str | None = Field(default=None, description="a share, such as '5%' or '0.05'")
    baselines: str | None = Field(default=None, description="the path of a folder")
    benchmark_command: str | None = Field(default=None, description="a command that measures speedups")
    known_failures: str | None = Field(default=None, description="the path of a TOML file")
    profiles: str | None = Field(default=None, description="the path of a folder")
    save_failures: str | None = Field(default=None, description="the path of a folder, or 'off'")
    accept: tuple[AcceptTable, ...] = Field(
        default=(), description="tables headed [[tool.harness.accept]]", strict=False
    )


class _Tools(BaseModel):
    model_config = ConfigDict(extra="ignore")

    harness: HarnessTable = Field(default=HarnessTable(), description="a table")


class Document(BaseModel):
    """``pyproject.toml``; the tables of other tools are theirs."""

    model_config = ConfigDict(extra="ignore")

    tool: _Tools = Field(default=_Tools(), description="a table")
