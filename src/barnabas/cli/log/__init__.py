"""`barnabas log`: look at, check and repair the files of a broker's logs."""
