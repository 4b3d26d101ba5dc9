"""The hardware check ``arithmetic``."""
