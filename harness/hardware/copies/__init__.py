"""The hardware check ``copies``."""
