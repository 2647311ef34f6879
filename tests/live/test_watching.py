"""Dashboard and alerts in deploy/ ask for nothing that is not there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fedtwin.live.run import opening
from fedtwin.live.views.device_series import MOST_DEVICES, DeviceSeries
from fedtwin.live.views.metrics import Metrics
from fedtwin.live.views.sight import Sight
from fedtwin.live.views.status import STATES
from tests.live.run.test_live_run import begun

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus-alerts.yaml"
ENDINGS = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


def queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    return [target["expr"] for panel in panels for target in panel["targets"]] + [rule["expr"] for rule in rules]


def test_every_query_names_a_metric_that_exists(tmp_path: Path) -> None:
    begun(tmp_path / "run").close()
    live, metrics = opening.resume(tmp_path / "run"), Metrics()
    metrics.registry.register(DeviceSeries(live.core, Sight(live.core), live.now_s, MOST_DEVICES))
    known = {f"{family.name}{end}" for family in metrics.registry.collect() for end in ENDINGS[family.type]}
    live.close()
    assert len(queries()) > 20
    for query in queries():
        named = re.findall(r"\bfedtwin_\w+", query)
        assert named and set(named) <= known, query


def test_alerts_ask_for_states_that_exist() -> None:
    for query in queries():
        for words in re.findall(r'\bstate[!=~]+"([^"]*)"', query):
            assert set(words.split("|")) <= set(STATES), query


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(ALERTS)], check=True, timeout=60)
