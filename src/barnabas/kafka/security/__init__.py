"""Principals, ACLs and the client's half of SASL, without I/O."""
