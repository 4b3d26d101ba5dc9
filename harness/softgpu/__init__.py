"""GPUs made of software: a pluggable device for TensorFlow, compiled at first use and loaded on request."""

from harness.softgpu.described import DescribedGpus
from harness.softgpu.library import build_library
from harness.softgpu.loading import SoftwareGpus, load, loaded, prepare, switch

__all__ = ["DescribedGpus", "SoftwareGpus", "build_library", "load", "loaded", "prepare", "switch"]
