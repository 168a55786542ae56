"""Every reason a job can show, once: what it means and what to do about it.

They stand in status.reason, in conditions and in Events. docs/status.md is generated from this file
(`python -m grpo_operator.reasons`). Where several faults are seen at once, the one that stands first here is shown.
The kubelet's, the Job controller's and the trainer's own words are kept as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from grpo_operator.state import Fault


@dataclass(frozen=True)
class Reason:
    """One reason."""

    name: str
    section: str
    meaning: str
    remedy: str
    """What to do; empty where nothing is to be done."""


REASONS: dict[str, Reason] = {}
"""All reasons by name, the gravest fault first."""

COURSE = "The course of a job"
MISSING = "Something the spec names is missing"
REFUSED = "The API server refuses a child"
PODS = "Pods do not start"
REFERENCE = "The reference server"
ENDS = "An attempt ended"
DISRUPTIONS = "An attempt was disrupted (not counted as a restart)"


def _reason(section: str, name: str, meaning: str, remedy: str = "") -> str:
    assert name not in REASONS, name
    REASONS[name] = Reason(name, section, meaning, remedy)
    return name


# The spec and what it names.
INVALID_SPEC = _reason(
    MISSING,
    "InvalidSpec",
    "The spec does not fit the GRPOJob the operator knows; nothing is created.",
    "Correct the field that the message names; `grpo validate` shows the same. After an upgrade, upgrade the CRD too.",
)
MISSING_SECRET = _reason(
    MISSING,
    "MissingSecret",
    "A Secret, or a key in it, does not exist in the job's namespace.",
    "Create it: `kubectl create secret generic NAME --from-literal=KEY=…`. It is looked for again every 30 s.",
)
MISSING_CONFIG_MAP = _reason(
    MISSING,
    "MissingConfigMap",
    "A ConfigMap does not exist in the job's namespace.",
    "Create it, such as reward code: `kubectl create configmap NAME --from-file=rewards.py`. It is looked for again "
    "every 30 s.",
)
MISSING_CLAIM = _reason(
    MISSING,
    "MissingClaim",
    "A PersistentVolumeClaim does not exist in the job's namespace.",
    "Create the claim, or name another one. It is looked for again every 30 s.",
)
CLAIM_NOT_SHARED = _reason(
    MISSING,
    "ClaimNotShared",
    "Several pods must mount the claim for the output, and its only access mode, ReadWriteOncePod, admits one.",
    "Use a claim with ReadWriteMany; or one trainer pod and no reference.sync.",
)
MISSING_SERVICE_ACCOUNT = _reason(
    MISSING,
    "MissingServiceAccount",
    "A ServiceAccount named by pod.serviceAccountName does not exist.",
    "Create it, or leave the field out. It is looked for again every 30 s.",
)

# The API server's word against a child.
QUOTA_EXCEEDED = _reason(
    REFUSED,
    "QuotaExceeded",
    "A ResourceQuota of the namespace leaves no room for a child.",
    "Raise the quota, lower the job's resources, or end other jobs: `kubectl describe quota`.",
)
POD_SECURITY_VIOLATION = _reason(
    REFUSED,
    "PodSecurityViolation",
    "The namespace's Pod Security Standard refuses the pods.",
    "Take the settings that the message names out of pod.securityContext or pod.volumes.",
)
ADMISSION_DENIED = _reason(
    REFUSED,
    "AdmissionDenied",
    "An admission webhook or policy refused a child.",
    "Read the webhook's words in the message; change the spec, or ask who runs the policy.",
)
FORBIDDEN = _reason(
    REFUSED,
    "Forbidden",
    "The operator may not create or change a child.",
    "Give its ServiceAccount the right that the message names; the chart's RBAC has all that it needs.",
)
INVALID_CHILD = _reason(
    REFUSED,
    "InvalidChild",
    "The API server holds a child made from the spec to be invalid.",
    "Correct the field that the message names, most often in pod, resources or volumes.",
)
NAME_TAKEN = _reason(
    REFUSED,
    "NameTaken",
    "An object with a child's name exists and belongs to something else, such as an earlier job being deleted.",
    "Nothing if it goes by itself; else delete it, or give the job another name.",
)
API_ERROR = _reason(
    REFUSED,
    "ApiError",
    "The API server could not take a child.",
    "Nothing at first: it is tried again. If it stays, look at the API server.",
)
FAILED_CREATE = _reason(
    REFUSED,
    "FailedCreate",
    "Kubernetes' own controllers cannot create the pods.",
    "Read the message; it is the controller's.",
)

# Pods that do not start: the kubelet's and the scheduler's words.
INVALID_IMAGE_NAME = _reason(
    PODS, "InvalidImageName", "The name of an image cannot be parsed.", "Correct the image in the spec."
)
ERR_IMAGE_NEVER_PULL = _reason(
    PODS,
    "ErrImageNeverPull",
    "The image is not on the node, and imagePullPolicy is Never.",
    "Load the image onto the node, or set another imagePullPolicy.",
)
IMAGE_PULL_BACK_OFF = _reason(
    PODS,
    "ImagePullBackOff",
    "An image cannot be pulled; the kubelet waits before it tries again.",
    "Check the image's name and tag, the registry, and pod.imagePullSecrets.",
)
ERR_IMAGE_PULL = _reason(
    PODS, "ErrImagePull", "An image could not be pulled.", "As for ImagePullBackOff, which follows."
)
CREATE_CONTAINER_CONFIG_ERROR = _reason(
    PODS,
    "CreateContainerConfigError",
    "A container's environment names a Secret or ConfigMap, or a key, that does not exist.",
    "Create what the message names.",
)
CREATE_CONTAINER_ERROR = _reason(
    PODS,
    "CreateContainerError",
    "The container runtime cannot make the container.",
    "Read the message; often a mount path or a command.",
)
RUN_CONTAINER_ERROR = _reason(
    PODS,
    "RunContainerError",
    "The container runtime cannot start the container.",
    "Read the message; often a GPU runtime that is missing (pod.runtimeClassName).",
)
FAILED_CREATE_POD_SANDBOX = _reason(
    PODS,
    "FailedCreatePodSandBox",
    "The node cannot set up a pod's network.",
    "Look at the node and its network plugin: `kubectl describe pod`.",
)
FAILED_ATTACH_VOLUME = _reason(
    PODS,
    "FailedAttachVolume",
    "A volume cannot be attached to the node.",
    "A ReadWriteOnce volume may be in use on another node: end that pod, or use ReadWriteMany.",
)
FAILED_MOUNT = _reason(
    PODS,
    "FailedMount",
    "A volume cannot be mounted.",
    "Read the message; often a Secret, ConfigMap or file server that is not there.",
)
PROVISIONING_FAILED = _reason(
    PODS,
    "ProvisioningFailed",
    "The storage class cannot make the volume that the claim asks for.",
    "Name a storageClassName that supports the access mode and size; several trainer pods, or reference.sync, need "
    "ReadWriteMany.",
)
CLAIM_LOST = _reason(
    PODS, "ClaimLost", "The volume behind the claim is gone.", "Restore the volume, or use another claim."
)
UNSCHEDULABLE = _reason(
    PODS,
    "Unschedulable",
    "No node has room for a pod, or none fits its selectors and tolerations.",
    "Read the scheduler's count of nodes in the message; lower resources, add nodes, or change pod.nodeSelector, "
    "pod.affinity or pod.tolerations.",
)
CRASH_LOOP_BACK_OFF = _reason(
    PODS,
    "CrashLoopBackOff",
    "A container ends again and again; the kubelet waits before it starts it anew.",
    "Read its log: `kubectl logs --previous POD`.",
)
PODS_STARTING = _reason(PODS, "PodsStarting", "Images are pulled, volumes mounted, containers started.")

# The reference server.
REFERENCE_STARTING = _reason(
    REFERENCE, "ReferenceStarting", "The reference server loads its model; the trainer starts once it is ready."
)
REFERENCE_READY = _reason(REFERENCE, "ReferenceReady", "All replicas of the reference server answer.")
REFERENCE_NOT_READY = _reason(
    REFERENCE,
    "ReferenceNotReady",
    "A reference pod is not ready during training; the trainer waits up to reference.requestTimeoutSeconds.",
    "Nothing if it comes back by itself; else read its log.",
)
REFERENCE_FAILED = _reason(
    REFERENCE,
    "ReferenceFailed",
    "The reference server ended with an exit code that says a new start would not help.",
    "Read the message and its log; most often the model cannot be found or read.",
)
REFERENCE_EXTERNAL = _reason(REFERENCE, "ReferenceExternal", "reference.url is used; the operator runs no reference.")
REFERENCE_NOT_NEEDED = _reason(REFERENCE, "ReferenceNotNeeded", "optimization.beta is 0: there is no KL term.")
REFERENCE_REMOVED = _reason(REFERENCE, "ReferenceRemoved", "The job has ended; its reference server was deleted.")

# How attempts end.
OOM_KILLED = _reason(
    ENDS,
    "OOMKilled",
    "The kernel killed a rank because the container's memory limit was reached.",
    "Raise trainer.resources.limits.memory, or lower perDeviceTrainBatchSize or maxCompletionLength; "
    "ds3GatherForGeneration false saves a full copy of the model.",
)
CONFIGURATION_ERROR = _reason(
    ENDS,
    "ConfigurationError",
    "The trainer refuses the configuration (exit code 64); no restart.",
    "Correct the field that the message names.",
)
DATASET_ERROR = _reason(
    ENDS,
    "DatasetError",
    "The dataset cannot be read, or lacks a column (exit code 65); no restart.",
    "Correct what the message names.",
)
REWARD_ERROR = _reason(
    ENDS,
    "RewardError",
    "A reward function raised an exception, took too long or returned something else than numbers (exit code 65); "
    "no restart.",
    "Correct the function; its exception is in the message, its traceback in the log. Or set onError: zero.",
)
PERMANENT_ERROR = _reason(
    ENDS,
    "PermanentError",
    "A rank ended with exit code 64 or 65, which say that a new start would not help, and gave no words; no restart.",
    "Read the rank's log.",
)
CRASHED = _reason(
    ENDS, "Crashed", "A rank ended with an exit code that nothing explains, or by a signal.", "Read the rank's log."
)
REFERENCE_LOST = _reason(
    ENDS,
    "ReferenceLost",
    "The reference server did not answer within reference.requestTimeoutSeconds (exit code 75).",
    "Read the reference server's log; raise reference.replicas if it is too slow.",
)
HUB_UNREACHABLE = _reason(
    ENDS,
    "HubUnreachable",
    "Model, tokenizer or dataset could not be fetched: the hub did not answer (exit code 75).",
    "Nothing, where it was an outage: the next attempt asks again. Else look at the network, the proxy, HF_ENDPOINT.",
)
PEER_LOST = _reason(
    ENDS,
    "PeerLost",
    "A rank lost another one and no graver cause was seen (exit code 75).",
    "Read the log of the rank that the message names; check the network between the nodes.",
)
SUPERSEDED = _reason(
    ENDS,
    "Superseded",
    "A rank found that a newer attempt of the run has begun, and wrote no checkpoint any more (exit code 75).",
    "Nothing: the newer attempt goes on. If it comes up again, see which node kept pods of an older attempt.",
)
INTERRUPTED = _reason(
    ENDS,
    "Interrupted",
    "A rank ended for a cause outside the job that has no name of its own (exit code 75).",
    "Read the message and the rank's log.",
)
TERMINATED = _reason(
    ENDS, "Terminated", "The trainer was asked to end (SIGTERM), and saved a checkpoint if it could (exit code 75)."
)
BACKOFF_LIMIT_EXCEEDED = _reason(
    ENDS,
    "BackoffLimitExceeded",
    "The attempt's Job failed, and its pods are gone, so that nothing more is known.",
    "Read the logs in the job's volume.",
)
POD_FAILURE_POLICY = _reason(
    ENDS,
    "PodFailurePolicy",
    "The attempt's Job failed by a rule on its pods' ends, and the pods are gone.",
    "Read the logs in the job's volume.",
)
DEADLINE_EXCEEDED = _reason(
    ENDS, "DeadlineExceeded", "The attempt's Job took longer than someone let it.", "Ask who set the deadline."
)
MAX_RESTARTS_REACHED = _reason(
    ENDS,
    "MaxRestartsReached",
    "An attempt ended badly and failurePolicy.maxRestarts is used up: the job is Failed.",
    "Cure the cause that the message names; then make the job anew.",
)
PODS_NOT_GONE = _reason(
    ENDS,
    "PodsNotGone",
    "Pods of an ended attempt do not end (most often their node does not answer); the next attempt starts without "
    "waiting any longer.",
    "Look at the node; delete it if it is gone for good.",
)

# DisruptionTarget's own reasons (kubernetes.io, pod disruption conditions).
PREEMPTION_BY_SCHEDULER = _reason(
    DISRUPTIONS,
    "PreemptionByScheduler",
    "A pod had to make room for one of higher priority.",
    "Set pod.priorityClassName if this job should come first.",
)
DELETION_BY_TAINT_MANAGER = _reason(
    DISRUPTIONS,
    "DeletionByTaintManager",
    "A node got a taint that a pod does not tolerate, often because it stopped answering.",
    "Look at the node.",
)
EVICTION_BY_EVICTION_API = _reason(
    DISRUPTIONS, "EvictionByEvictionAPI", "A pod was evicted, as by `kubectl drain` or an autoscaler."
)
DELETION_BY_POD_GC = _reason(DISRUPTIONS, "DeletionByPodGC", "A pod's node no longer exists.")
TERMINATION_BY_KUBELET = _reason(
    DISRUPTIONS,
    "TerminationByKubelet",
    "The kubelet ended a pod: its node ran short of memory or disk, or shut down.",
    "Set requests equal to limits, so that the pod is not the first to go.",
)
DISRUPTED = _reason(DISRUPTIONS, "Disrupted", "A pod was ended from outside, its node was lost.", "Look at the node.")

# The course of a job.
ACCEPTED = _reason(COURSE, "Accepted", "The spec is valid and everything it names exists.")
TRAINER_STARTING = _reason(COURSE, "TrainerStarting", "The trainer's pods are being created and started.")
TRAINER_LOADING = _reason(
    COURSE, "TrainerLoading", "All trainer pods run; they find each other and load model and data."
)
TRAINING = _reason(COURSE, "Training", "The trainer makes steps; status.progress says how far it is.")
ATTEMPT_STARTED = _reason(COURSE, "AttemptStarted", "A trainer attempt is created, the first or the next.")
BACK_OFF = _reason(
    COURSE, "BackOff", "An attempt ended; the next one starts after a wait that grows with each restart."
)
WAITING_FOR_PODS = _reason(
    COURSE,
    "WaitingForPods",
    "The pods of an ended attempt have not ended yet; the next one waits, so that no two write at once.",
    "If a node does not answer, delete it; after a while the next attempt starts all the same.",
)
SUSPENDING = _reason(COURSE, "Suspending", "spec.suspend is set; the pods save a checkpoint and end.")
SUSPENDED = _reason(COURSE, "Suspended", "spec.suspend is set and nothing runs.", "Set spec.suspend to false to go on.")
RESUMED = _reason(COURSE, "Resumed", "spec.suspend was taken back; a new attempt goes on from the newest checkpoint.")
SUCCEEDED = _reason(COURSE, "Succeeded", "The target step is reached; status.modelPath says where the model lies.")


def order(fault: Fault) -> int:
    """Return the rank of a fault among others: the lower, the earlier it is shown. Words we do not know come last."""
    return _ORDER.get(fault.reason, len(_ORDER))


def first(faults: Iterable[Fault]) -> Fault | None:
    """Return the fault to show, or None where there is none."""
    return min(faults, key=order, default=None)


def refusal(status: int, message: str) -> Fault:
    """Return what a refused API call means: `status` is its HTTP code, `message` the API server's sentence."""
    text = message.lower()
    if "exceeded quota" in text:
        return Fault(QUOTA_EXCEEDED, message)
    if "violates podsecurity" in text:
        return Fault(POD_SECURITY_VIOLATION, message)
    if "admission webhook" in text or "validatingadmissionpolicy" in text:
        return Fault(ADMISSION_DENIED, message)
    if status in (401, 403):
        return Fault(FORBIDDEN, message)
    if status in (400, 422):
        return Fault(INVALID_CHILD, message)
    return Fault(API_ERROR, message)


def markdown() -> str:
    """Return all reasons as Markdown, one table per section, for docs/status.md."""
    lines: list[str] = []
    for section in dict.fromkeys([COURSE, *(reason.section for reason in REASONS.values())]):
        lines += [f"### {section}", "", "| reason | what it means | what to do |", "|---|---|---|"]
        for reason in REASONS.values():
            if reason.section == section:
                lines.append(f"| `{reason.name}` | {reason.meaning} | {reason.remedy or '–'} |")
        lines.append("")
    return "\n".join(lines)


_ORDER = {name: number for number, name in enumerate(REASONS)}

if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201  (the docs generator reads it)
