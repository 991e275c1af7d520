"""What a cluster agrees on: the metadata store, its nodes, and the immutable image made of them."""
