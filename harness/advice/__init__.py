"""Where should a program run? Ways to use the devices, each verified against one device before it is timed."""
