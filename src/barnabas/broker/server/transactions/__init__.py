"""A partition leader's tasks in transactions: it admits writes, and appends the markers that end them."""
