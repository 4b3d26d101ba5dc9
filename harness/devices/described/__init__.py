"""Machines described in a file: their cards, their software and their faults."""
