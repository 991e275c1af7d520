"""A partition leader's part in transactions: which writes it lets in, and the markers that end them."""
