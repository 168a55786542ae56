"""spec.model and spec.hub: which model is trained, and how it is fetched."""

from typing import Annotated, Literal

from pydantic import Field

from .base import Model, not_built

Name = Annotated[str, Field(min_length=1, max_length=1024)]
ObjectName = Annotated[str, Field(max_length=253, pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""Name of a Kubernetes object (a DNS-1123 subdomain)."""
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class Lora(Model):
    """Low-rank adapters instead of full fine-tuning."""

    r: Annotated[int, Field(ge=1, le=4096)] = 16
    """Rank of the adapters."""
    alpha: Annotated[int, Field(ge=1)] = 32
    """Scale of the adapters (the update is alpha / r)."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Dropout of the adapters' input."""
    target_modules: Annotated[list[Name], Field(max_length=64)] = Field(default_factory=list)
    """Names of the linear modules that get adapters; empty: all linear ones."""


class ModelSpec(Model):
    """The model that is trained."""

    rules = (not_built("has(self.lora)", "model.lora", "remove the group"),)

    name: Name
    """Hub id (`Qwen/Qwen2.5-0.5B-Instruct`), or a path in a mounted volume."""
    revision: Annotated[str, Field(max_length=256)] | None = None
    """Branch, tag or commit on the hub; absent: the default branch."""
    dtype: Dtype = "auto"
    """Type of weights and activations; `auto` is the checkpoint's own."""
    attn_implementation: Annotated[str, Field(max_length=256)] | None = None
    """transformers' attention: `sdpa`, `eager`, `flash_attention_2`…; absent: transformers' choice."""
    trust_remote_code: bool = False
    """Whether Python code from the model's repository may run in the pods."""
    lora: Lora | None = None
    """Train adapters only. Not supported in this version."""


class SecretKey(Model):
    """A key of a Secret in the job's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"
    """Key in it."""


class Hub(Model):
    """How the hub is reached."""

    token_secret: SecretKey | None = None
    """Secret that holds the hub's token (HF_TOKEN)."""
    offline: bool = False
    """Never ask the hub (HF_HUB_OFFLINE=1): everything must be in a volume or the cache."""
    cache_volume: ObjectName | None = None
    """Name of a PersistentVolumeClaim that keeps downloads (HF_HOME) between runs."""
