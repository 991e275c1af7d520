"""`python -m bench.large_cluster` with the fewest possible brokers and partitions."""

from __future__ import annotations

import asyncio

import pytest
from bench.large_cluster import Cluster, main


@pytest.mark.parametrize("brokers", [3, 4])
def test_the_smallest_clusters_are_measured_to_the_end(capsys, brokers):
    asyncio.run(Cluster(brokers, 20, 10).run())
    assert "| the controller dies |" in capsys.readouterr().out


def test_the_same_is_measured_on_a_real_zookeeper(capsys, monkeypatch):
    options = ["--brokers", "3", "--partitions", "20", "--new", "10", "--zookeeper"]
    monkeypatch.setattr("sys.argv", ["bench.large_cluster", *options])
    main()
    assert "| the controller dies |" in capsys.readouterr().out


def test_too_few_brokers_are_refused(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench.large_cluster", "--brokers", "2"])
    with pytest.raises(SystemExit):
        main()
    assert "--brokers 2" in capsys.readouterr().err
