"""Benchmarks of Barnabas beside Apache Kafka and Tansu, in one run on one machine.

`python -m bench --quick` (about three minutes) or `python -m bench` (under twenty-five). Absolute figures
depend on the machine and on what else it does, so every round measures all brokers in turn and the report
compares ratios within a round.
"""
