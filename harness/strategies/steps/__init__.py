"""The steps that a program can be made of."""
