"""For each CEL rule a manifest that it refuses: (the beginning of its sentence, changes of a valid job's spec)."""

from typing import Any

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("generation.numGenerations must be at least 2", {"generation": {"numGenerations": 1}}),
    ("the generation batch", {"optimization": {"perDeviceTrainBatchSize": 3}}),
    (
        "generation.stepsPerGeneration × optimization.numIterations",
        {"generation": {"stepsPerGeneration": 2}, "optimization": {"gradientAccumulationSteps": 4}},
    ),
    (
        "reference.sync has no effect with optimization.beta 0",
        {"reference": {"sync": {}}, "optimization": {"beta": 0.0}},
    ),
    (
        "reference.url has no effect with optimization.beta 0",
        {"reference": {"url": "http://elsewhere:8000"}, "optimization": {"beta": 0.0}},
    ),
    ("reference.requestTimeoutSeconds must be below", {"reference": {"requestTimeoutSeconds": 600}}),
    (
        "trainer.collectiveTimeoutSeconds must be below failurePolicy.stallTimeoutSeconds",
        {"failurePolicy": {"stallTimeoutSeconds": 600}},
    ),
    (
        "trainer.processesPerPod must equal the limit nvidia.com/gpu",
        {"trainer": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
    ),
    (
        "generation.ds3GatherForGeneration has no effect below ZeRO stage 3",
        {"generation": {"ds3GatherForGeneration": True}, "trainer": {"deepspeed": {"zeroStage": 2}}},
    ),
    ("env sets a reserved name", {"env": [{"name": "REF_MODEL_URL", "value": "http://mine"}]}),
    ("pod.env sets a reserved name", {"trainer": {"pod": {"env": [{"name": "PET_NNODES", "value": "8"}]}}}),
    ("volumes has a volume of a reserved name", {"volumes": [{"name": "output", "emptyDir": {}}]}),
    ("volumeMounts mounts over a reserved path", {"volumeMounts": [{"name": "mine", "mountPath": "/output/x"}]}),
    (
        "pod.volumes has a volume of a reserved name",
        {"reference": {"pod": {"volumes": [{"name": "token", "emptyDir": {}}]}}},
    ),
    (
        "pod.volumeMounts mounts over a reserved path",
        {"trainer": {"pod": {"volumeMounts": [{"name": "mine", "mountPath": "/run/grpo"}]}}},
    ),
    ("deepspeed.offloadParam has no effect", {"trainer": {"deepspeed": {"zeroStage": 2, "offloadParam": "cpu"}}}),
    (
        "deepspeed.offloadOptimizer has no effect",
        {"trainer": {"deepspeed": {"zeroStage": 0, "offloadOptimizer": "cpu"}}},
    ),
    ("reference.url names an external server", {"reference": {"url": "http://elsewhere:8000", "replicas": 2}}),
    (
        "checkpoint.volume.retention Delete has no effect with claimName",
        {"checkpoint": {"volume": {"claimTemplate": None, "claimName": "mine", "retention": "Delete"}}},
    ),
    ("optimization.maxSteps 0 would train nothing", {"optimization": {"maxSteps": 0}}),
    ("optimization.warmupSteps has no effect", {"optimization": {"lrSchedulerType": "constant", "warmupSteps": 5}}),
    ("ttlSecondsAfterFinished is not supported", {"ttlSecondsAfterFinished": 60}),
    ("activeDeadlineSeconds is not supported", {"activeDeadlineSeconds": 60}),
    ("model.lora is not supported", {"model": {"lora": {}}}),
    (
        "generation.ds3GatherForGeneration has no effect with generation.engine vllm",
        {"generation": {"engine": "vllm", "ds3GatherForGeneration": True}},
    ),
    ("generation.mode async needs generation.engine vllm", {"generation": {"mode": "async"}}),
    ("generation.engine vllm is not supported", {"generation": {"engine": "vllm"}}),
    ("generation.mode async is not supported", {"generation": {"mode": "async"}}),
    ("generation.maxStaleness is not supported", {"generation": {"maxStaleness": 2}}),
    ("generation.vllm is not supported", {"generation": {"vllm": {}}}),
    (
        "reference.sync cannot replace the model of an external reference.url",
        {"reference": {"sync": {}, "url": "http://elsewhere:8000"}},
    ),
    ("reference.sync needs engine transformers", {"reference": {"engine": "vllm", "sync": {}}}),
    ("reference.deterministic needs engine transformers", {"reference": {"engine": "sglang", "deterministic": True}}),
    (
        "reference.maxQueuedTokens has no effect with engine vllm",
        {"reference": {"engine": "vllm", "maxQueuedTokens": 5000}},
    ),
    (
        "generation.temperature must be 1 with reference.engine vllm",
        {"reference": {"engine": "vllm"}, "generation": {"temperature": 0.7}},
    ),
    (
        "reference.tensorParallelSize must equal the limit nvidia.com/gpu",
        {"reference": {"tensorParallelSize": 2, "resources": {"limits": {"nvidia.com/gpu": 4}}}},
    ),
    (
        "reference.tensorParallelSize has no effect with reference.url",
        {"reference": {"tensorParallelSize": 2, "url": "http://elsewhere:8000"}},
    ),
    (
        "reference.maxBatchTokens, maxQueuedTokens and dtype have no effect with reference.url",
        {"reference": {"maxBatchTokens": 4096, "url": "http://elsewhere:8000"}},
    ),
    (
        "reference.maxBatchTokens, maxQueuedTokens and dtype have no effect with reference.url",
        {"reference": {"dtype": "float32", "url": "http://elsewhere:8000"}},
    ),
    (
        "reference.resources, pod and imagePullPolicy have no effect with reference.url",
        {"reference": {"resources": {"requests": {"cpu": 1}}, "url": "http://elsewhere:8000"}},
    ),
    (
        "reference.resources, pod and imagePullPolicy have no effect with reference.url",
        {"reference": {"pod": {"env": [{"name": "A", "value": "1"}]}, "url": "http://elsewhere:8000"}},
    ),
    (
        "reference.resources, pod and imagePullPolicy have no effect with reference.url",
        {"reference": {"pod": {"priorityClassName": "high"}, "url": "http://elsewhere:8000"}},
    ),
    ("reference.maxQueuedTokens must hold one row", {"reference": {"maxQueuedTokens": 10}}),
    (
        "resources.requests nvidia.com/gpu must equal the limit",
        {"reference": {"resources": {"requests": {"nvidia.com/gpu": 1}}}},
    ),
    (
        "resources.requests nvidia.com/gpu must equal the limit",
        {"trainer": {"resources": {"requests": {"nvidia.com/gpu": 2}, "limits": {"nvidia.com/gpu": 1}}}},
    ),
    (
        "reference.sync replaces the reference by the policy",
        {"reference": {"sync": {"everySteps": 5}, "model": "/models/another"}},
    ),
    (
        "checkpoint.volume is mounted by several pods",
        {
            "reference": {"sync": {"everySteps": 5}},
            "checkpoint": {"volume": {"claimTemplate": {"accessModes": ["ReadWriteOncePod"]}}},
        },
    ),
    ("checkpoint.resumeFrom is not supported", {"checkpoint": {"resumeFrom": "elsewhere"}}),
    (
        "checkpoint.volume has both claimName and claimTemplate",
        {"checkpoint": {"volume": {"claimName": "mine", "claimTemplate": {}}}},
    ),
    ("failurePolicy.stallTimeoutSeconds is not supported", {"failurePolicy": {"stallTimeoutSeconds": 1800}}),
    ("logging.reportTo wandb is not supported", {"logging": {"reportTo": "wandb"}}),
)

NAMES = ("Run", "9run", "a" * 41, "a.b", "run-")
"""Names that are no names for a job. (The API server refuses some of them by rules of its own.)"""

FIXED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("model.name cannot change after creation", {"model": {"name": "/models/other"}}),
    ("optimization.learningRate cannot change after creation", {"optimization": {"learningRate": 0.5}}),
    ("generation.topK cannot change after creation", {"generation": {"topK": 50}}),
    ("reference.url cannot change after creation", {"reference": {"url": "http://elsewhere:8000"}}),
    ("trainer.replicas cannot change after creation", {"trainer": {"replicas": 4}}),
    (
        "trainer.resources can change only while the job is suspended",
        {"trainer": {"resources": {"limits": {"cpu": 4}}}},
    ),
)
"""Changes of a job that exists."""

MUTABLE: tuple[dict[str, Any], ...] = (
    {"suspend": True},
    {"failurePolicy": {"maxRestarts": 9}},
    {"logging": {"everySteps": 5}},
    {"cleanupPolicy": "Retain"},
    {"reference": {"replicas": 2}},
)
"""Changes that are allowed at any time."""
