import json

import numpy as np
import pytest
from grpo_scoring import messages
from grpo_scoring.groups import Group, completion_offsets
from grpo_scoring.wire import (
    JSON,
    MEDIA_TYPES,
    SAFETENSORS,
    LogprobsAnswer,
    LogprobsRequest,
    WireError,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from grpo_scoring.wire_json import JsonRequest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=12)
groups = st.lists(
    st.builds(Group.of, token_ids.filter(bool), st.lists(token_ids, min_size=1, max_size=5)),
    min_size=1,
    max_size=5,
)
versions = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@+/-]{0,20}", fullmatch=True)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.isprintable)
media_types = st.sampled_from(MEDIA_TYPES)


@st.composite
def requests(draw: st.DrawFn) -> LogprobsRequest:
    version = draw(st.none() | versions)
    return LogprobsRequest(
        groups=draw(groups),
        temperature=draw(st.floats(1e-3, 1e3)),
        deadline_seconds=draw(st.none() | st.floats(1e-6, 1e9)),
        version=version,
        version_path=draw(st.none() | names) if version else None,
    )


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[Group], LogprobsAnswer]:
    asked = draw(groups)
    offsets = completion_offsets(asked)
    values = draw(
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            min_size=int(offsets[-1]),
            max_size=int(offsets[-1]),
        )
    )
    return asked, LogprobsAnswer(np.array(values, dtype=np.float32), offsets, draw(names), draw(versions))


@given(requests(), media_types)
def test_a_request_comes_back_as_it_was(request_, media_type):
    assert decode_request(encode_request(request_, media_type), media_type) == request_


@given(answers(), media_types)
def test_an_answer_comes_back_bit_for_bit(asked_and_answer, media_type):
    asked, answer = asked_and_answer
    back = decode_answer(encode_answer(answer, asked, media_type), media_type, asked)
    assert back.logprobs.tobytes() == answer.logprobs.tobytes()
    assert back.logprobs.dtype == np.float32
    assert np.array_equal(back.offsets, answer.offsets)
    assert (back.model, back.version) == (answer.model, answer.version)


@given(st.binary(max_size=300), media_types)
def test_garbage_gives_our_error_only(body, media_type):
    with pytest.raises(WireError):
        decode_request(body, media_type)
    with pytest.raises(WireError):
        decode_answer(body, media_type, [Group.of([1], [[2]])])


@given(requests(), st.data(), media_types)
def test_a_damaged_request_gives_our_error_or_a_request(request_, data, media_type):
    body = bytearray(encode_request(request_, media_type))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_request(bytes(body[: data.draw(st.integers(0, len(body)))]), media_type)
    except WireError:
        return
    assert decoded.groups


ONE = Group.of([1, 2], [[3, 4], [5]])
TENSORS = {
    "prompt_ids": np.array([1, 2], np.int32),
    "prompt_offsets": np.array([0, 2], np.int32),
    "completion_ids": np.array([3, 4, 5], np.int32),
    "completion_offsets": np.array([0, 2, 3], np.int32),
    "group_offsets": np.array([0, 2], np.int32),
}


def test_the_documented_layout_is_the_one_read():
    assert decode_request(save(TENSORS, {"temperature": "0.7"}), SAFETENSORS) == LogprobsRequest([ONE], 0.7)
    body = b'{"groups":[{"prompt":[1,2],"completions":[[3,4],[5]]}],"temperature":0.7}'
    assert decode_request(body, JSON) == LogprobsRequest([ONE], 0.7)
    assert encode_request(LogprobsRequest([ONE], 0.7), JSON) == body


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"prompt_ids": np.array([1, 2], np.int64)}, "prompt_ids", "must be I32"),
        ({"prompt_ids": np.array([[1, 2]], np.int32)}, "prompt_ids", "of one dimension"),
        ({"prompt_ids": np.array([1, -2], np.int32)}, "prompt_ids", "negative"),
        ({"prompt_offsets": np.array([1, 2], np.int32)}, "prompt_offsets", "starts with 0"),
        ({"prompt_offsets": np.array([], np.int32)}, "prompt_offsets", "starts with 0"),
        ({"prompt_offsets": np.array([0, 3], np.int32)}, "prompt_offsets", "end at the size of prompt_ids, 2"),
        ({"prompt_offsets": np.array([0], np.int32)}, "prompt_offsets", "must end at"),
        ({"prompt_offsets": np.array([0, 0, 2], np.int32)}, "group_offsets", "for 1 groups"),
        (
            {"prompt_offsets": np.array([0, 0, 2], np.int32), "group_offsets": np.array([0, 1, 2], np.int32)},
            "prompt_offsets",
            "group 0 has an empty prompt",
        ),
        ({"completion_offsets": np.array([0, 2, 1, 3], np.int32)}, "completion_offsets", "never fall"),
        ({"completion_offsets": np.array([0, 2**31 - 1, 3], np.int32)}, "completion_offsets", "never fall"),
        ({"group_offsets": np.array([0, 3], np.int32)}, "group_offsets", "must end at"),
        ({"extra": np.array([0], np.int32)}, "extra", "not a known tensor"),
    ],
)
def test_bad_tensors_are_named(change, field, problem):
    with pytest.raises(WireError, match=problem) as caught:
        decode_request(save(TENSORS | change), SAFETENSORS)
    assert caught.value.field == field


def test_missing_tensor_and_unknown_metadata_are_named():
    rest = {name: value for name, value in TENSORS.items() if name != "group_offsets"}
    with pytest.raises(WireError, match="group_offsets: is missing"):
        decode_request(save(rest), SAFETENSORS)
    with pytest.raises(WireError, match="seed: is not known metadata"):
        decode_request(save(TENSORS, {"seed": "1"}), SAFETENSORS)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": "-1"}, "temperature"),
        ({"deadlineSeconds": "inf"}, "deadlineSeconds"),
        ({"deadlineSeconds": "0"}, "deadlineSeconds"),
        ({"version": ""}, "version"),
        ({"version": "a b"}, "version"),
        ({"version": "x" * 129}, "version"),
        ({"versionPath": "versions/1"}, "versionPath"),
        ({"version": "1", "versionPath": "a\nb"}, "versionPath"),
    ],
)
def test_bad_scalars_are_named_in_both_encodings(metadata, field):
    with pytest.raises(WireError) as caught:
        decode_request(save(TENSORS, metadata), SAFETENSORS)
    assert caught.value.field == field
    scalars = {
        name: json.loads(text) if text in ("0", "-1") and name != "version" else text for name, text in metadata.items()
    }
    with pytest.raises(WireError) as caught:
        decode_request(json.dumps({"groups": [{"prompt": [1], "completions": [[2]]}]} | scalars).encode(), JSON)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b"{", "body"),
        (b"[" * 100000, "body"),
        (b"{}", "groups"),
        (b'{"groups":[]}', "groups"),
        (b'{"groups":[{"prompt":[],"completions":[[1]]}]}', "groups[0].prompt"),
        (b'{"groups":[{"prompt":[1],"completions":[]}]}', "groups[0].completions"),
        (b'{"groups":[{"prompt":[1],"completions":[[1,2],[3,-4]]}]}', "groups[0].completions[1][1]"),
        (b'{"groups":[{"prompt":[1.5],"completions":[[1]]}]}', "groups[0].prompt[0]"),
        (b'{"groups":[{"prompt":["1"],"completions":[[1]]}]}', "groups[0].prompt[0]"),
        (b'{"groups":[{"prompt":[2147483648],"completions":[[1]]}]}', "groups[0].prompt[0]"),
        (b'{"groups":[{"prompt":[1],"completions":[[1]]}],"seed":1}', "seed"),
    ],
)
def test_bad_json_is_named(body, field):
    with pytest.raises(WireError) as caught:
        decode_request(body, JSON)
    assert caught.value.field == field


ONE_GROUP = '"groups":[{"prompt":[1],"completions":[[1]]}]'


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (f'{{{ONE_GROUP},"temperature":NaN}}', "temperature: must be from 0.001 to 1000, got nan"),
        (f'{{{ONE_GROUP},"temperature":2000}}', "temperature: must be from 0.001 to 1000, got 2000.0"),
        (f'{{{ONE_GROUP},"deadlineSeconds":-1}}', "deadlineSeconds: must be a finite number above 0, got -1.0"),
        (f'{{{ONE_GROUP},"deadlineSeconds":Infinity}}', "deadlineSeconds: must be a finite number above 0, got inf"),
        (f'{{{ONE_GROUP},"seed":1}}', "seed: is not a known field: remove it, or correct its name"),
        ("{}", "groups: is missing"),
        ('{"groups":[]}', "groups: is empty: send at least one prompt with its completions"),
        ('{"groups":[{"prompt":[],"completions":[[1]]}]}', "groups[0].prompt: is empty: it needs at least one entry"),
    ],
)
def test_bad_json_is_told_what_is_right(body, sentence):
    with pytest.raises(WireError) as caught:
        decode_request(body.encode(), JSON)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", ["deadline_seconds", "version_path"])
def test_only_the_documented_spelling_is_taken(name):
    with pytest.raises(WireError, match="is not a known field") as caught:
        decode_request(f'{{{ONE_GROUP},"version":"a","{name}":null}}'.encode(), JSON)
    assert caught.value.field == name


def test_a_clients_name_for_a_field_is_cut():
    with pytest.raises(WireError) as caught:
        decode_request(f'{{{ONE_GROUP},"{"x" * 100_000}":1}}'.encode(), JSON)
    assert len(caught.value.field) == 128


def test_what_is_checked_elsewhere_is_in_the_schema():
    properties = JsonRequest.model_json_schema()["properties"]
    assert properties["groups"]["minItems"] == 1
    assert (properties["temperature"]["minimum"], properties["temperature"]["maximum"]) == (1e-3, 1e3)
    assert {"type": "number", "exclusiveMinimum": 0} in properties["deadlineSeconds"]["anyOf"]


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_more_completions_than_a_server_should_hold_are_refused(media_type, monkeypatch):
    groups = [Group.of([1], [[]] * 5), Group.of([2], [[3], []])]
    monkeypatch.setattr(messages, "MAX_COMPLETIONS", 7)
    body = encode_request(LogprobsRequest(groups), media_type)
    assert len(decode_request(body, media_type).groups) == 2
    monkeypatch.setattr(messages, "MAX_COMPLETIONS", 6)
    with pytest.raises(WireError, match="has 7 completions, and a request takes 6: send fewer groups at a time"):
        decode_request(body, media_type)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"groups":[' + b",".join([b'{"prompt":[1],"completions":[[]]}'] * 65537) + b"]}", "groups"),
        (b'{"groups":[{"prompt":[1],"completions":[' + b",".join([b"[]"] * 65537) + b"]}]}", "groups[0].completions"),
    ],
    ids=["groups", "completions"],
)
def test_json_of_too_many_parts_is_refused_before_they_are_made(body, field):
    with pytest.raises(WireError, match="has more than 65536 entries: send fewer groups at a time") as caught:
        decode_request(body, JSON)
    assert caught.value.field == field


def answer_of(*values: float) -> LogprobsAnswer:
    return LogprobsAnswer(np.array(values, np.float32), completion_offsets([ONE]), "m", "base")


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_an_answer_to_another_request_is_refused(media_type):
    body = encode_answer(answer_of(-1, -2, -3), [ONE], media_type)
    for other in (Group.of([1, 2], [[3], [4, 5]]), Group.of([1, 2], [[3, 4, 5]]), Group.of([1], [[3, 4]])):
        with pytest.raises(WireError):
            decode_answer(body, media_type, [other])
        with pytest.raises(WireError, match="do not fit the request"):
            encode_answer(answer_of(-1, -2, -3), [other], media_type)


def test_an_answer_that_is_not_finite_is_refused():
    for value in (float("nan"), float("-inf")):
        with pytest.raises(WireError, match="NaN or infinity"):
            answer_of(-1, -2, value)
    for number in (b"1e300", b"NaN", b"-Infinity", b"null"):
        body = b'{"logprobs":[[[-1,-2],[' + number + b']]],"model":"m","version":"base"}'
        with pytest.raises(WireError):
            decode_answer(body, JSON, [ONE])
    broken = save(
        {"logprobs": np.array([-1, -2, np.nan], np.float32), "completion_offsets": np.array([0, 2, 3], np.int32)},
        {"model": "m", "version": "base"},
    )
    with pytest.raises(WireError, match="NaN or infinity"):
        decode_answer(broken, SAFETENSORS, [ONE])


def test_an_unknown_media_type_is_refused():
    with pytest.raises(WireError, match="Content-Type: must be one of"):
        decode_request(b"", "text/plain")
