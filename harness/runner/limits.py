"""Time limits, in seconds."""

from __future__ import annotations

#: A check, unless the user gives a limit.
DEFAULT_TIMEOUT_S = 120.0
#: The same where a check is to exercise as much as it can.
DEEP_TIMEOUT_S = 3600.0
#: Importing TensorFlow and configuring the devices. A cold disk and eight GPUs are slow.
STARTUP_LIMIT_S = 300.0
#: How much later than its parent's limit a process ends itself.
LAST_RESORT_S = 20.0
