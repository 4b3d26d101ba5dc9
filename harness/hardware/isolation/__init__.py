"""The hardware check ``isolation``."""
