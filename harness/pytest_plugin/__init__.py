"""The pytest plug-in: one file per concern."""
