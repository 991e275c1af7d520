"""Groups of the classic protocol (KIP-62, 345, 394, 429, 800, 814) and the offsets that groups commit."""
