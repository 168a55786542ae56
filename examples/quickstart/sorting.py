"""The quickstart's reward: 1 for a right answer that has ended, else 0."""

EOS_ID = 2
"""Id of the end token of the quickstart's tokenizer (prepare.py)."""


def exact(completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: object) -> list[float]:
    """Reward completions that equal the dataset's column `answer` and end with the end token."""
    return [
        float(completion == right and ids[-1:] == [EOS_ID])
        for completion, ids, right in zip(completions, completion_ids, answer, strict=True)
    ]
