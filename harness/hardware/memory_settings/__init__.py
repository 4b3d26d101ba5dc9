"""The hardware check ``memory-settings``."""
