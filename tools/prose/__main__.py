"""The command line of `python -m tools.prose`."""

import sys

from tools.prose.ratchet import main

sys.exit(main(sys.argv[1:]))
