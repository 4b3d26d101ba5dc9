"""The hardware check ``cards``: numbering and identity."""
