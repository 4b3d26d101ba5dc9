"""Checks of the hardware itself, written against ``harness.machine.machine.Machine`` alone."""
