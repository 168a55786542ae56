"""A fingerprint of a tokenizer, so that trainer and reference can tell that their token ids mean the same."""

from __future__ import annotations

import hashlib
import json
from typing import Protocol


class HasVocabulary(Protocol):
    """What transformers' tokenizers offer."""

    def get_vocab(self) -> dict[str, int]:
        """Token to id, added tokens included."""
        ...


def tokenizer_hash(tokenizer: HasVocabulary) -> str:
    """SHA-256 over the vocabulary, as ``sha256:<hex>``.

    Only the mapping of ids to tokens counts: the reference sees ids alone, so merges, padding side and chat
    template may differ without harm. Take the hash of the tokenizer as it was loaded, before tokens are added.
    """
    entries = sorted((index, token) for token, index in tokenizer.get_vocab().items())
    digest = hashlib.sha256(json.dumps(entries, separators=(",", ":")).encode())
    return f"sha256:{digest.hexdigest()}"
