"""The stages in which a broker starts, one module each.

A stage uses only parts of earlier stages. When a stage is open, all its parts work.
"""
