"""The hardware check ``corruption``."""
