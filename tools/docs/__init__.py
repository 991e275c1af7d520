"""Documentation made from the code: reference pages, and drawings of the packages."""
