"""`barnabas metrics`: files for monitoring brokers with Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.broker.metrics.alerts import rules
from barnabas.broker.metrics.dashboards import DASHBOARDS
from barnabas.cli.options import FOLDER, example

_SCRAPES = """\
# Which brokers Prometheus reads: put their addresses in. `barnabas start --metrics HOST:PORT` serves there.
scrape_configs:
  - job_name: barnabas
    static_configs:
      - targets: ["127.0.0.1:9404"]
  - job_name: barnabas-partitions
    metrics_path: /metrics/partitions
    scrape_interval: 60s
    static_configs:
      - targets: ["127.0.0.1:9404"]
rule_files:
  - barnabas-alerts.yml
"""


@click.group()
def metrics() -> None:
    """Dashboards and alert rules for Prometheus and Grafana."""


@metrics.command(
    epilog=example(
        "barnabas metrics files --out monitoring",
        "Writes prometheus.yml, barnabas-alerts.yml, barnabas-brokers.json and barnabas-topics.json into the "
        "folder, and replaces files of these names.",
    )
)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=FOLDER,
    help="The folder to write to, created if it is missing.",
)
def files(out: Path) -> None:
    """Write Grafana dashboards, alert rules and Prometheus settings."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "prometheus.yml": _SCRAPES,
        "barnabas-alerts.yml": rules(),
        **{f"{dashboard.name}.json": dashboard.text for dashboard in DASHBOARDS},
    }
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
        click.echo(out / name)
