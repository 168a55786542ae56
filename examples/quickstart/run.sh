#!/bin/bash
# run.sh [SEED]: the quickstart, step by step: make model and prompts, measure, train, measure again.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=${1:-0}
bin=.venv/bin
made=runs/quickstart
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

evaluate() { # evaluate MODEL REPORT: accuracy on the held-out prompts, greedy and sampled
  "$bin/grpo" evaluate --model "$1" --dataset "$made/heldout.jsonl" --reward sorting:exact \
    --reward-path examples/quickstart --max-completion-length 4 --output "$2"
}

echo "1/4  a small model and its prompts, made from seed $seed"
"$bin/python" examples/quickstart/prepare.py "$made" --seed "$seed"
echo "2/4  accuracy on held-out prompts before"
evaluate "$made/model" "$made/before.json"
echo "3/4  GRPO: a reference server and two ZeRO-3 ranks"
"$bin/grpo" run examples/quickstart.yaml --output "$made/jobs" --reward-path examples/quickstart \
  --result "$made/result.json"
echo "4/4  accuracy on held-out prompts after"
model=$("$bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["modelPath"])' "$made/result.json")
evaluate "$model" "$made/after.json"
"$bin/python" examples/quickstart/summary.py "$made"
