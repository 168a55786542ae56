"""The metrics that the chart's Grafana dashboard asks for."""

from __future__ import annotations

import json
import re
from pathlib import Path

PATH = Path(__file__).parents[1] / "charts" / "grpo" / "dashboards" / "grpo.json"
_NAME = re.compile(r"\b(?:grpo|process)_\w+")
_LABELS = re.compile(r"\{[^}]*\}|\bby \([^)]*\)")


def queried(prefix: str) -> set[str]:
    """Names of the series, beginning with ``prefix``, that panels and variables query."""
    dashboard = json.loads(PATH.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [re.sub(r"label_values\((.*),[^,]*\)", r"\1", entry["definition"]) for entry in variables(dashboard)]
    names = {name for query in queries for name in _NAME.findall(_LABELS.sub("", query))}
    return {name for name in names if name.startswith(prefix)}


def variables(dashboard: dict) -> list[dict]:
    """The variables that are filled by a query."""
    return [entry for entry in dashboard["templating"]["list"] if entry["type"] == "query"]


def exported(exposition: str) -> set[str]:
    """Names of the series in Prometheus' text format."""
    lines = [line for line in exposition.splitlines() if line and not line.startswith("#")]
    return {re.match(r"[A-Za-z_:][A-Za-z0-9_:]*", line)[0] for line in lines}
