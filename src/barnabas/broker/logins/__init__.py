"""The broker's half of SASL, without I/O: mechanisms, stored credentials, delegation tokens."""
