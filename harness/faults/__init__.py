"""Planted faults: multi-device programs with a known fault, each with the same program done right.

They show that the judgement finds what it should and leaves alone what is right. ``catalogue.FAULTS`` lists them.
"""
