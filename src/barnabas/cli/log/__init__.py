"""`barnabas log`: shows, checks and repairs the files of a broker's logs."""
