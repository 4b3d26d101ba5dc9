"""The hardware check ``memory``."""
