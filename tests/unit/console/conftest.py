"""Views of simulated clusters."""

from __future__ import annotations

import pytest

from barnabas.console import survey
from barnabas.console.survey import Survey
from barnabas.console.view import ClusterView


@pytest.fixture
def view_of(monkeypatch):
    monkeypatch.setattr(survey, "BEFORE_S", 0)
    views = []

    def make(cluster):
        view = ClusterView(cluster.servers)
        view.brokers.close()
        view.brokers = cluster
        view._survey = Survey(cluster, view.metadata, view.rates, view._log_dirs)
        views.append(view)
        return view

    yield make
    for view in views:
        view.brokers.answers.set()
        view.close()
