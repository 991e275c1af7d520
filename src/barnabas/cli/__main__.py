"""`python -m barnabas.cli`, if the script is not on the path."""

from barnabas.cli import main

main()
