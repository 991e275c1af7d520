"""The broker's side of SASL logins, without I/O: mechanisms, stored credentials, delegation tokens."""
