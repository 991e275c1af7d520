"""Checks the prose of pages and docstrings against Simplified Technical English.

    python -m tools.prose                   report files with more findings than `allowed.txt` permits
    python -m tools.prose FILE...           print every finding of these files
    python -m tools.prose --write           lower the permitted numbers to the findings of today
    python -m tools.prose --docstrings      print how many docstrings open with a relative clause

proselint finds the matches. `rules` has the rules of this project, and `texts` separates prose from code.
docs/adr/0016-proselint-checks-the-prose.md gives the reasons.
"""
