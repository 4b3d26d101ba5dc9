"""The hardware check ``sustained-load``."""
