"""The operator's own metrics, for Prometheus."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from .queue import Key

REGISTRY = CollectorRegistry()

RECONCILES = Counter(
    "grpo_operator_reconcile", "Reconciliations by result (success, error).", ["result"], registry=REGISTRY
)
RECONCILE_SECONDS = Histogram(
    "grpo_operator_reconcile_seconds",
    "Duration of one reconciliation in seconds.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("grpo_operator_queue_depth", "Jobs that wait to be reconciled.", registry=REGISTRY)
WATCH_SILENT = Gauge("grpo_operator_watch_silent_jobs", "Jobs whose changes the watch did not tell.", registry=REGISTRY)


class JobsByPhase(Collector):
    """`grpo_jobs`: how many jobs there are, counted when asked."""

    def __init__(self, phases: Callable[[], Mapping[Key, str]]) -> None:
        self._phases = phases

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the gauge."""
        family = GaugeMetricFamily("grpo_jobs", "GRPOJobs by namespace and phase.", labels=["namespace", "phase"])
        tally = Tally((key.namespace, phase) for key, phase in list(self._phases().items()))
        for (namespace, phase), count in sorted(tally.items()):
            family.add_metric([namespace, phase], count)
        yield family
