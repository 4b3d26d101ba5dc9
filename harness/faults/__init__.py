"""Planted faults: multi-device programs with a known fault, each beside the same program without it.

They show that the judgement finds faults and passes correct programs. ``catalogue.FAULTS`` lists them.
"""
