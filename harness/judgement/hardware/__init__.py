"""Judges what was measured on hardware: pure functions of numbers, which give findings with what to do about them."""
