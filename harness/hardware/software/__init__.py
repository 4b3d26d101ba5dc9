"""The hardware check ``software``."""
