"""The hardware check ``collectives``."""
