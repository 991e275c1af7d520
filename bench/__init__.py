"""Benchmarks of Barnabas beside Apache Kafka and Tansu, in one run on one machine.

`python -m bench --quick` takes about three minutes, `python -m bench` less than twenty-five. Absolute figures
depend on the machine and on its other work. So each round measures all brokers in turn, and the report
compares ratios within a round.
"""
