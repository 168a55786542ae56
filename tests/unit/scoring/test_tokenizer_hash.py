from grpo_scoring.tokenizer_hash import tokenizer_hash


class Vocabulary:
    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


def test_only_the_mapping_counts():
    one = tokenizer_hash(Vocabulary({"a": 0, "b": 1}))
    assert one == tokenizer_hash(Vocabulary({"b": 1, "a": 0}))
    assert one != tokenizer_hash(Vocabulary({"a": 1, "b": 0}))
    assert one != tokenizer_hash(Vocabulary({"a": 0, "b": 1, "c": 2}))


def test_the_hash_is_the_same_in_every_process():
    # printf '[[0,"a"],[1,"\\u00e9"]]' | sha256sum
    expected = "a274c759972757f01c0206e6c760cc068418ae9206d8599c58708a6113987a79"
    assert tokenizer_hash(Vocabulary({"é": 1, "a": 0})) == f"sha256:{expected}"


def test_a_real_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    )
    before = tokenizer_hash(tokenizer)
    tokenizer.padding_side = "left"
    assert tokenizer_hash(tokenizer) == before
    tokenizer.add_tokens(["new"])
    assert tokenizer_hash(tokenizer) != before
