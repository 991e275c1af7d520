"""The foundation of all packages: environment, operating system, errors, types and text."""
