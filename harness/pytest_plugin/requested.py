"""Which devices a session asks for, and where the request comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.devices.project import Project

OPTION_DEVICES = "--harness-devices"
ENVIRONMENT_DEVICES = "HARNESS_DEVICES"
INI_DEVICES = "harness_devices"
DEFAULT_DEVICES = "auto"


def project_for(config: pytest.Config) -> Project | None:
    """The settings of the project; raises UsageError where they are broken."""
    from harness.devices.project import project_of
    from harness.errors import UsageError

    try:
        project = project_of(config.rootpath)
        if project is not None and project.accept:
            from harness.judgement.accepted import known_acceptances

            known_acceptances(project.accept)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    return project


def requested(config: pytest.Config, project: Project | None) -> tuple[str, str]:
    """The spec, and where it comes from."""
    if (given := config.getoption(OPTION_DEVICES)) is not None:
        return str(given), OPTION_DEVICES
    if given := os.environ.get(ENVIRONMENT_DEVICES):
        return given, f"environment variable {ENVIRONMENT_DEVICES}"
    if given := str(config.getini(INI_DEVICES)).strip():
        folder = config.rootpath if config.inipath is None else config.inipath.parent
        if given.endswith(".toml") and not given.startswith("@"):
            given = str(folder / given)
        return given, f"ini key {INI_DEVICES}"
    if project is not None and "devices" in project.settings:
        return project.settings["devices"], f"tool.harness in {project.file.name}"
    return DEFAULT_DEVICES, "default"
