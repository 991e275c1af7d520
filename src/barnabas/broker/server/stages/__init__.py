"""The stages in which a broker opens: each is whole once it is open, and gets the stages below it."""
