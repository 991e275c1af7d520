"""The catalogue of the broker's metrics, its dashboards and its alert rules."""
