"""The broker's half of SASL: mechanisms, stored credentials, delegation tokens; without I/O."""
