"""``python -m harness``, and the command ``harness``: heeds ^C before it imports the rest, which takes a moment."""

from __future__ import annotations

import sys
from typing import NoReturn

from harness.cli.endings import Ended, heed_signals


def main() -> NoReturn:
    """Run the command line, and exit with its code."""
    heed_signals()
    try:
        from harness.cli.app import main as run

        run()
    except Ended as ended:
        sys.stderr.write(f"harness: ended by {ended}\n")
        sys.exit(ended.exit_code)


if __name__ == "__main__":
    main()
