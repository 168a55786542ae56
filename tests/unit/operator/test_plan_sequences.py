"""Random histories of a job: crashes of pods and of the operator between any two writes, at any moment.

The cluster here is a model (a dozen lines of what the Job controller and garbage collection do), since the real one
could not be made to go through thousands of histories; tests/integration has the real API server.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import hypothesis.strategies as st
from grpo_api.v1alpha1 import Status
from grpo_operator import reasons
from grpo_operator.plan import plan
from grpo_operator.policies.finished import is_finished
from grpo_operator.state import Attempt, Fault, Limits, Observed, Plan, Pod, Reference
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.operator.world import NOW, PLACES, ended_pod, make_job, running_pod

REPLICAS = 2
EVICTED = Fault(reasons.EVICTION_BY_EVICTION_API, "evicted")


class Died(Exception):
    """The operator dies here."""


@dataclass
class ModelCluster:
    """Jobs with their pods, the reference, the written status, a clock."""

    status: Status = field(default_factory=Status)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    reference_exists: bool = False
    reference_ready: bool = False
    suspend: bool = False
    seconds: float = 0
    writes_left: int | None = None
    """Writes until the operator dies."""

    def write(self) -> None:
        if self.writes_left == 0:
            raise Died
        if self.writes_left is not None:
            self.writes_left -= 1

    def observe(self) -> Observed:
        ready = int(self.reference_exists and self.reference_ready)
        reference = Reference(self.reference_exists, 1, ready, int(self.reference_exists))
        return Observed(places=PLACES, reference=reference, attempts=tuple(self.attempts.values()))

    def carry_out(self, made: Plan) -> None:
        if made.remove_reference:
            self.write()
            self.reference_exists = self.reference_ready = False
        if made.reference:
            self.write()
            self.reference_exists = made.reference.replicas > 0
        for number in made.remove_attempts:
            self.write()
            old = self.attempts[number]
            pods = tuple(replace(pod, terminating=True) for pod in old.pods if pod.live)
            self.attempts[number] = replace(old, exists=False, pods=pods)
        if made.attempt and (n := made.attempt.number) not in self.attempts:
            self.write()
            self.attempts[n] = Attempt(n, exists=True, pods=tuple(running_pod(i, n) for i in range(REPLICAS)))
        self.write()
        self.status = made.status
        self.forget()

    def end_pod(self, number: int, index: int, ended: Pod) -> None:
        """End a pod; the Job controller then fails the Job and asks the others to end, or completes it."""
        attempt = self.attempts[number]
        pods = tuple(ended if pod.index == index else pod for pod in attempt.pods)
        if attempt.exists and ended.exit_code != 0 and attempt.finished is None:
            pods = tuple(replace(pod, terminating=pod.live) for pod in pods)
            attempt = replace(attempt, finished="Failed")
        if attempt.exists and len(pods) == REPLICAS and all(pod.exit_code == 0 for pod in pods):
            attempt = replace(attempt, finished="Complete")
        if not attempt.exists:
            pods = tuple(pod for pod in pods if pod.live)
        self.attempts[number] = replace(attempt, pods=pods)
        self.forget()

    def forget(self) -> None:
        self.attempts = {n: a for n, a in self.attempts.items() if a.exists or a.pods}

    def live(self) -> list[tuple[int, int]]:
        return [(number, pod.index) for number, attempt in self.attempts.items() for pod in attempt.live]


class Histories(RuleBasedStateMachine):
    """What may happen, in any order."""

    @initialize(max_restarts=st.integers(0, 3), backoff=st.sampled_from([0, 10]))
    def begin(self, max_restarts: int, backoff: float) -> None:
        self.cluster = ModelCluster()
        self.max_restarts = max_restarts
        self.job = make_job(failurePolicy__maxRestarts=max_restarts)
        self.limits = Limits(backoff=backoff)
        self.end: Status | None = None
        self.bad_ends: set[int] = set()
        self.cluster.reference_ready = True
        for _ in range(3):
            self.reconcile()

    def reconcile(self, writes: int | None = None) -> Plan:
        cluster = self.cluster
        cluster.writes_left = writes
        job = self.job.model_copy(
            update={
                "status": cluster.status,
                "spec": self.job.spec.model_copy(update={"suspend": cluster.suspend}),
            }
        )
        before = set(cluster.attempts)
        made = plan(job, cluster.observe(), NOW + timedelta(seconds=cluster.seconds), self.limits)
        live_before = cluster.live()
        with suppress(Died):
            cluster.carry_out(made)
        new = set(cluster.attempts) - before
        if new:
            assert len(new) == 1
            assert self.end is None, "a finished job was run again"
            assert not cluster.suspend
            ended = job.status.trainer.last_termination if job.status.trainer else None
            patience = timedelta(seconds=job.spec.trainer.termination_grace_period_seconds + self.limits.gone)
            waited_long = ended is not None and NOW + timedelta(seconds=cluster.seconds) - ended.time >= patience
            assert waited_long or not live_before, "two attempts run at once"
        if is_finished(cluster.status) and self.end is None:
            self.end = cluster.status
            complete = any(attempt.finished == "Complete" for attempt in cluster.attempts.values())
            assert complete == (self.end.phase == "Succeeded")
        return made

    @rule(writes=st.none() | st.integers(0, 4))
    def operator_runs(self, writes: int | None) -> None:
        self.reconcile(writes)

    @rule(seconds=st.sampled_from([1, 400]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.seconds += seconds

    @rule(runs=st.integers(1, 4), writes=st.none() | st.integers(0, 3))
    def operator_runs_on(self, runs: int, writes: int | None) -> None:
        """Several runs, each when the one before asked for it, the last of which may be cut short."""
        for _ in range(runs):
            self.cluster.seconds += self.reconcile().look_again or 0
        self.reconcile(writes)

    @rule(ready=st.booleans())
    def reference_changes(self, ready: bool) -> None:
        self.cluster.reference_ready = ready

    @precondition(lambda self: self.cluster.live())
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1, 75, 137]), evicted=st.booleans())
    def pod_ends(self, data: st.DataObject, code: int, evicted: bool) -> None:
        number, index = data.draw(st.sampled_from(self.cluster.live()))
        disruption = EVICTED if evicted and code else None
        if code and self.cluster.attempts[number].finished is None:
            self.bad_ends.add(number)
        self.cluster.end_pod(number, index, ended_pod(index, code, number, disruption=disruption))

    @precondition(lambda self: self.cluster.live())
    @rule(codes=st.tuples(*[st.sampled_from([0, 1, 75])] * REPLICAS))
    def all_pods_end(self, codes: tuple[int, ...]) -> None:
        for number, index in self.cluster.live():
            if codes[index] and self.cluster.attempts[number].finished is None:
                self.bad_ends.add(number)
            self.cluster.end_pod(number, index, ended_pod(index, codes[index], number))

    @rule(suspend=st.booleans())
    def user_suspends(self, suspend: bool) -> None:
        self.cluster.suspend = suspend

    @precondition(lambda self: any(attempt.exists for attempt in self.cluster.attempts.values()))
    @rule(data=st.data())
    def user_deletes_a_job(self, data: st.DataObject) -> None:
        there = [number for number, attempt in self.cluster.attempts.items() if attempt.exists]
        number = data.draw(st.sampled_from(there))
        old = self.cluster.attempts[number]
        live = tuple(replace(pod, terminating=True) for pod in old.live)
        self.cluster.attempts[number] = replace(old, exists=False, finished=None, pods=live)
        self.cluster.forget()

    @invariant()
    def counts_hold(self) -> None:
        status = self.cluster.status
        assert status.restarts <= self.max_restarts
        number = status.trainer.attempt if status.trainer else 0
        assert status.restarts + status.disruptions <= number
        assert status.restarts <= len(self.bad_ends), "something was counted that did not happen, or twice"

    @invariant()
    def the_end_stays(self) -> None:
        if self.end is not None:
            assert self.cluster.status.phase == self.end.phase
            assert self.cluster.status.reason == self.end.reason
            assert self.cluster.status.completion_time == self.end.completion_time

    def teardown(self) -> None:
        """Whatever happened: with quiet from now on, the job comes to its end."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        cluster.suspend, cluster.reference_ready = False, True
        for _ in range(40):
            made = self.reconcile()
            if self.end is not None:
                break
            for number, index in cluster.live():
                good = cluster.attempts[number].finished is None and cluster.attempts[number].exists
                cluster.end_pod(number, index, ended_pod(index, 0 if good else 75, number))
            cluster.seconds += made.look_again or 1
        assert self.end is not None, f"no end is reached: {cluster.status.phase} {cluster.status.message}"
        self.counts_hold()


Histories.TestCase.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
TestHistories = Histories.TestCase
