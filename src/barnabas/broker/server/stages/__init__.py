"""The stages in which a broker opens.

Each stage uses the stages below it, and all its parts work when it is open.
"""
