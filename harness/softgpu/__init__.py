"""GPUs made of software: a pluggable device for TensorFlow, compiled at first use and loaded on request."""

from harness.softgpu.library import build_library
from harness.softgpu.loading import SoftwareGpus, load, loaded

__all__ = ["SoftwareGpus", "build_library", "load", "loaded"]
