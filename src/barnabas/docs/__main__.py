"""``python -m barnabas.docs``: see `barnabas.docs.pages`."""

import sys

from barnabas.docs.pages import main

if __name__ == "__main__":
    sys.exit(main())
