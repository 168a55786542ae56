"""Say how the quickstart went: accuracy before and after, where the model lies, what to try next.

usage: summary.py FOLDER     (reads before.json, after.json and result.json; exit status 1 if the job has not Succeeded)
"""

import json
import sys
from pathlib import Path


def main() -> int:
    """Print the summary."""
    folder = Path(sys.argv[1])
    before, after, result = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("before", "after", "result")
    )
    print()
    for kind in ("greedy", "sampled"):
        print(f"accuracy on held-out prompts, {kind:8}{before[kind]:.2f} → {after[kind]:.2f}")
    print(f"phase   {result['phase']}")
    print(f"model   {result['modelPath']}")
    print(f"plot    {result['plot']}")
    print(
        "\nTry next:\n"
        f"  .venv/bin/grpo evaluate --model {result['modelPath']} --dataset {folder}/heldout.jsonl "
        "--reward sorting:exact --reward-path examples/quickstart --samples 5\n"
        "  .venv/bin/grpo render examples/quickstart.yaml    # the Kubernetes objects this job would become"
    )
    return 0 if result["phase"] == "Succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
