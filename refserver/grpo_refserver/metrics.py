"""Prometheus metrics, listed in docs/metrics.md. Each server has its own registry: tests have several in a process."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_scoring.groups import Group
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from grpo_refserver.engine import Refusal, VersionError
from grpo_refserver.model import LoadedModel

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

CLIENT_GONE = 499
"""nginx's status for a client that closed the connection: never sent, only counted."""
CAUSES = {
    400: "invalid",
    401: "unauthorized",
    404: "invalid",
    406: "media_type",
    408: "slow_body",
    409: "version",
    413: "too_large",
    415: "media_type",
    422: "invalid",
    429: "queue_full",
    CLIENT_GONE: "client_gone",
    500: "failed",
    503: "not_serving",
    504: "deadline",
}
"""Why a request was refused or dropped, by its status, where its field does not say it."""
_VERSION_FIELDS = ("version", "versionPath")


class Metrics:
    """What ``GET /metrics`` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.ready = Gauge("grpo_reference_ready", "1 while requests are accepted.", registry=self.registry)
        self.info = Gauge(
            "grpo_reference_info",
            "Always 1; the labels say what is loaded.",
            ["model", "version", "dtype", "device"],
            registry=self.registry,
        )
        self.version_loads = Counter(
            "grpo_reference_version_loads_total",
            "Versions loaded beside the one that serves: staged, or refused as unknown, bad or unavailable.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in ("staged", *(refusal.value for refusal in Refusal)):
            self.version_loads.labels(outcome)
        self.swaps = Counter(
            "grpo_reference_swaps_total", "Versions put in the place of another.", registry=self.registry
        )
        self.requests = Counter(
            "grpo_reference_requests_total",
            "Requests to score or to reload by HTTP status; 499: the client went away.",
            ["status"],
            registry=self.registry,
        )
        self.rejects = Counter(
            "grpo_reference_rejects_total",
            "Requests to score or to reload that were not answered with 200, by cause.",
            ["cause"],
            registry=self.registry,
        )
        for cause in sorted({*CAUSES.values()}):
            self.rejects.labels(cause)
        self.request_seconds = Histogram(
            "grpo_reference_request_seconds",
            "From the whole body read to the answer, of requests answered with 200.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.wait_seconds = Histogram(
            "grpo_reference_wait_seconds",
            "From a request's acceptance to its first forward, of requests answered with 200.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.open_requests = Gauge(
            "grpo_reference_open_requests", "Requests accepted and not answered yet.", registry=self.registry
        )
        self.queue_tokens = Gauge("grpo_reference_queue_tokens", "Tokens that wait.", registry=self.registry)
        self.queue_requests = Gauge(
            "grpo_reference_queue_requests", "Requests of which something waits.", registry=self.registry
        )
        self.queue_age = Gauge(
            "grpo_reference_queue_age_seconds",
            "Since the oldest request of which something waits was accepted; 0 where nothing waits.",
            registry=self.registry,
        )
        self.staging = Gauge(
            "grpo_reference_staging", "1 while a version is loaded beside the one that serves.", registry=self.registry
        )
        self.batch_seconds = Histogram(
            "grpo_reference_batch_seconds",
            "Scoring time of a batch.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_tokens = Histogram(
            "grpo_reference_batch_tokens",
            "Tokens of a batch, each prompt counted once.",
            buckets=[2**power for power in range(6, 19)],
            registry=self.registry,
        )
        self.batch_fill = Histogram(
            "grpo_reference_batch_fill",
            "Tokens of a batch over --max-batch-tokens; above 1 where a single group is larger.",
            buckets=[tenth / 10 for tenth in range(1, 11)],
            registry=self.registry,
        )
        self.computed_tokens = Counter(
            "grpo_reference_computed_tokens_total",
            "Tokens that forwards computed; with row_tokens it gives what shared prompts save.",
            registry=self.registry,
        )
        self.row_tokens = Counter(
            "grpo_reference_row_tokens_total",
            "Tokens that one row per completion would have needed.",
            registry=self.registry,
        )
        self.tokens = Counter(
            "grpo_reference_tokens_total",
            "Tokens scored, each prompt counted once.",
            ["kind"],
            registry=self.registry,
        )

    def loaded(self, info: LoadedModel) -> None:
        """Shows what serves from now on, and nothing else."""
        self.info.clear()
        self.info.labels(info.name, info.version, info.dtype, info.device).set(1)

    def staged(self, refused: VersionError | None) -> None:
        """Counts a version that was loaded beside the one that serves, or refused."""
        self.version_loads.labels("staged" if refused is None else refused.refusal.value).inc()

    def answered(self, status: int, field: str | None = None) -> None:
        """Counts a request by its status, and a reject by its cause; ``field`` is what was wrong."""
        self.requests.labels(status).inc()
        if status != 200:
            cause = "version" if field in _VERSION_FIELDS else CAUSES.get(status, "failed")
            self.rejects.labels(cause).inc()

    def batch(self, groups: Sequence[Group], seconds: float, *, cost: int, max_batch_tokens: int) -> None:
        """Counts a scored batch; ``cost`` is what it took of ``max_batch_tokens``."""
        self.batch_fill.observe(cost / max_batch_tokens)
        self.computed_tokens.inc(cost)
        # The last token of a completion predicts nothing, and is not computed.
        self.row_tokens.inc(sum(group.row_tokens - sum(map(bool, map(len, group.completions))) for group in groups))
        completion = sum(group.completion_tokens for group in groups)
        total = sum(group.tokens for group in groups)
        self.batch_seconds.observe(seconds)
        self.batch_tokens.observe(total)
        self.tokens.labels("prompt").inc(total - completion)
        self.tokens.labels("completion").inc(completion)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
