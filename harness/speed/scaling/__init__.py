"""How does the time change with the number of devices? Strong and weak scaling, and the serial fraction behind it."""
