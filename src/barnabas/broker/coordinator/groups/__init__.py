"""Groups of the classic and the consumer protocol, and the offsets that groups commit."""
