"""`python -m barnabas.cli`, where the script is not on the path."""

from barnabas.cli import main

main()
