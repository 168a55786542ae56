"""Whatever bytes arrive, decoding gives a valid request or a WireError, and takes no memory that was not sent."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from grpo_scoring.groups import Group
from grpo_scoring.wire import JSON, MEDIA_TYPES, SAFETENSORS, LogprobsRequest, WireError, decode_request, encode_request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

MANY = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = ["prompt_ids", "prompt_offsets", "completion_ids", "completion_offsets", "group_offsets"]
VALID = [
    encode_request(
        LogprobsRequest(
            [Group.of([1, 2, 3], [[4, 5], [], [6]]), Group.of([7], [[8]])],
            temperature=0.7,
            deadline_seconds=30.0,
            version="step-5",
            version_path="versions/step-5",
        ),
        media_type,
    )
    for media_type in (SAFETENSORS, JSON)
]


def check(body: bytes, media_type: str) -> bool:
    """Decodes; returns whether it was valid. Anything but a WireError is a bug."""
    try:
        request = decode_request(body, media_type)
    except WireError:
        return False
    assert request.groups
    for group in request.groups:
        assert group.prompt.size > 0
        for ids in (group.prompt, *group.completions):
            assert ids.dtype == np.int32
            assert not ids.size or ids.min() >= 0
    assert sum(group.tokens for group in request.groups) * 4 <= len(body) or media_type == JSON
    return True


def test_the_valid_ones_are_valid():
    assert all(check(body, media_type) for body, media_type in zip(VALID, (SAFETENSORS, JSON), strict=True))


@MANY
@given(st.binary(max_size=400), st.sampled_from(MEDIA_TYPES))
def test_raw_bytes(body, media_type):
    check(body, media_type)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, str]:
    """A valid body after a few cuts, insertions and overwritten places."""
    place = draw(st.sampled_from([0, 1]))
    body = bytearray(VALID[place])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["flip", "insert", "cut", "copy", "end", "length"])):
            case "flip" if at < len(body):
                body[at] ^= 1 << draw(st.integers(0, 7))
            case "insert":
                body[at:at] = draw(st.binary(min_size=1, max_size=9))
            case "cut":
                del body[at : at + draw(st.integers(1, 40))]
            case "copy":
                body[at:at] = body[at : at + draw(st.integers(1, 40))]
            case "end":
                del body[at:]
            case "length":
                body[:8] = struct.pack("<Q", draw(st.integers(0, 2**64 - 1)))
    return bytes(body), (SAFETENSORS, JSON)[place]


@MANY
@given(mutated())
def test_mutated_bodies(case):
    check(*case)


@pytest.mark.parametrize("place", [0, 1], ids=MEDIA_TYPES)
def test_thousands_of_damaged_bodies(place):
    """Fewer kinds of damage than hypothesis finds, and many more of them."""
    random = np.random.default_rng(0)
    valid = 0
    for _ in range(15_000):
        body = bytearray(VALID[place])
        for at in random.integers(0, len(body), random.integers(1, 4)):
            body[at] = random.integers(0, 256)
        if random.random() < 0.2:
            del body[random.integers(0, len(body)) :]
        valid += check(bytes(body), (SAFETENSORS, JSON)[place])
    assert 0 < valid < 15_000, "some damage goes unseen (another token id), most does not"


_SMALL = st.integers(-3, 12)
_ARRAY = st.lists(_SMALL, max_size=8).map(lambda values: np.array(values, dtype=np.int32))
_ODD = st.sampled_from([np.int64, np.float32, np.uint8, np.float16]).map(lambda dtype: np.zeros(3, dtype=dtype))
_SHAPED = st.sampled_from([(), (2, 2), (0, 3), (1, 1, 1)]).map(lambda shape: np.zeros(shape, dtype=np.int32))


@MANY
@given(
    st.dictionaries(st.sampled_from([*NAMES, "other"]), st.one_of(_ARRAY, _ODD, _SHAPED), max_size=6),
    st.dictionaries(
        st.sampled_from(["temperature", "deadlineSeconds", "version", "versionPath", "x"]), st.text(max_size=12)
    ),
)
def test_tensors_of_any_shape_and_metadata_of_any_text(tensors, metadata):
    check(bytes(save(tensors, metadata)), SAFETENSORS)


@MANY
@given(st.tuples(*[_ARRAY] * 5), st.sampled_from(["1.0", "nan", "-1", "1e400", "", "0x1"]))
def test_offsets_of_any_kind(arrays, temperature):
    body = bytes(save(dict(zip(NAMES, arrays, strict=True)), {"temperature": temperature}))
    if check(body, SAFETENSORS):
        flat = dict(zip(NAMES, arrays, strict=True))
        assert flat["prompt_offsets"][-1] == flat["prompt_ids"].size
        assert flat["group_offsets"][-1] == flat["completion_offsets"].size - 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["groups", "prompt", "x"]), inner),
    max_leaves=12,
)


@MANY
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "groups": _JSON,
            "temperature": _JSON,
            "deadlineSeconds": _JSON,
            "version": _JSON,
            "versionPath": _JSON,
            "seed": _JSON,
        },
    )
)
def test_json_of_any_kind(message):
    check(json.dumps(message).encode(), JSON)


def peak_growth(body: bytes, media_type: str) -> int:
    """Bytes by which the peak of this process's memory rises while a bad body is decoded."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is used now
    before = peak()
    assert not check(body, media_type)
    return peak() - before


def peak() -> int:
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def declared(dtype: str, shape: list[int], size: int) -> bytes:
    """A safetensors header that declares a tensor, with no data behind it."""
    tensors = {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, size]} for name in NAMES}
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (declared("I32", [2**28], 2**30), SAFETENSORS),
        (declared("I32", [2**62], 2**64 - 4), SAFETENSORS),
        (declared("I32", [2**32, 2**32], 4), SAFETENSORS),
        (struct.pack("<Q", 2**30) + b"{}", SAFETENSORS),
        (struct.pack("<Q", 2**63) + b"{}", SAFETENSORS),
        (b"[" * 100_000, JSON),
        (b'{"groups":' + b"[" * 100_000, JSON),
        (b'{"groups":[{"prompt":[1],"completions":[[' + b"9" * 100_000 + b"]]}]}", JSON),
        (struct.pack("<Q", 100_000) + b'{"a":' + b"[" * 99_995, SAFETENSORS),
    ],
    ids=["1 GB", "16 EB", "overflow", "1 GB header", "8 EB header", "deep", "deep groups", "digits", "deep header"],
)
def test_what_is_declared_and_not_sent_costs_nothing(body, media_type):
    check(body, media_type)  # what is loaded once is not counted
    assert peak_growth(body, media_type) < 2**22
