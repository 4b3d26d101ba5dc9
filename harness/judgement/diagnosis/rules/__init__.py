"""The causes that are known: one file for each, and :mod:`table`, in which order they are tried."""
