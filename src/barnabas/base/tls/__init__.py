"""Certificates and key stores."""
