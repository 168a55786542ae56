"""The installed operator: small, and without what only the training pods need."""

from __future__ import annotations

from tests.e2e.operator import Operator
from tests.e2e.support import Cluster
from tests.measurements import Measurements


def test_the_operator_is_small(cluster: Cluster, operator: Operator, bench: Measurements):
    find = "import importlib.util as u; print([n for n in ('torch', 'numpy', 'transformers') if u.find_spec(n)])"
    found = operator.kubectl("exec", f"deployment/{operator.deployment}", "--", "python", "-c", find)
    assert found.strip() == "[]"
    images = operator.kubectl.get("nodes")["items"][0]["status"]["images"]
    size = next(image["sizeBytes"] for image in images if cluster.images.operator in (image["names"] or []))
    bench.add("operator image", size / 1e6, "MB", target=300)
    bench.add("operator RSS when idle", operator.rss_megabytes(), "MB", target=100)
