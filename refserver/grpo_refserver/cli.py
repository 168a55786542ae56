"""``grpo-refserver``: the command line."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from grpo_api.env import DEFAULT_REFERENCE_PORT, GRPO_TOKEN_FILE

log = logging.getLogger("grpo_refserver.cli")  # not __name__: that is __main__ under python -m

DESCRIPTION = """\
Serves log-probabilities of given completions under a frozen reference model: the KL term of GRPO, off the
training GPUs. Trainers send token ids to POST /v1/logprobs and get one number per completion token back.
"""
EPILOG = """\
routes:
  POST /v1/logprobs     log-probabilities (application/json or application/x-safetensors)
  POST /v1/completions  the same for OpenAI's clients: prompt_logprobs in vLLM's shape
  POST /v1/reload       loads another version of the weights, below --versions-root; so does a request that wants it
  GET  /v1/info         model, version, vocabulary, limits
  GET  /healthz         200 while the process is of use      GET /readyz   200 once the model is loaded and warm
  GET  /metrics         Prometheus                           GET /docs     the API, described

examples:
  grpo-refserver --model Qwen/Qwen2.5-0.5B-Instruct --dtype bfloat16
  grpo-refserver --model /models/base --host 0.0.0.0 --token-file /run/secrets/token --max-batch-tokens 32768
  grpo-refserver --model /models/base --versions-root /output/versions        # iterative GRPO
  curl localhost:8000/v1/logprobs --json '{"groups":[{"prompt":[1,2],"completions":[[3,4],[5]]}]}'

exit codes: 0 drained after SIGTERM; 2 flags that are unknown or malformed; 64 settings that cannot work; 75 the hub
could not be reached; 1 anything else. A second SIGTERM ends at once, and gives up what is not answered (1).
"""


def parser() -> argparse.ArgumentParser:
    """The flags. Those that a GRPOJob sets are named after its spec.reference fields."""
    result = argparse.ArgumentParser(
        "grpo-refserver",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    model = result.add_argument_group("model")
    model.add_argument("--model", required=True, help="hub id, or path of a folder with config and safetensors")
    model.add_argument("--revision", help="branch, tag or commit at the hub (default: main)")
    model.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "float32", "bfloat16", "float16"],
        help="type of the weights; auto is the checkpoint's own. Use the policy's (default: auto)",
    )
    model.add_argument("--device", default="auto", help="auto is the first GPU, else cpu (default: auto)")
    model.add_argument(
        "--attn-implementation", metavar="NAME", help="sdpa, eager, flash_attention_2 (default: transformers' choice)"
    )
    model.add_argument("--trust-remote-code", action="store_true", help="run Python code from the model's repository")
    model.add_argument(
        "--tensor-parallel-size",
        type=_count,
        metavar="N",
        default=1,
        help="GPUs (or processes on a CPU) that one copy of the model is spread over; a process is started for each, "
        "unless torchrun did (default: %(default)s)",
    )
    model.add_argument(
        "--model-version",
        default="base",
        help="name of what --model holds, given in every answer; a request can ask for it again (default: base)",
    )
    model.add_argument(
        "--versions-root",
        type=Path,
        metavar="FOLDER",
        help="folder below which requests may name other versions of the weights, to be loaded in the place of the "
        "current ones: config.json and safetensors, as save_pretrained writes them (default: none may)",
    )

    serving = result.add_argument_group("serving")
    serving.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 in a pod (default: %(default)s)"
    )
    serving.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        default=DEFAULT_REFERENCE_PORT,
        help="0 takes a free one, which the log names (default: %(default)s)",
    )
    serving.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        default=os.environ.get(GRPO_TOKEN_FILE) or None,
        help=f"file with the bearer token that /v1 routes ask for; read again when it changes (default: "
        f"${GRPO_TOKEN_FILE}, else open to all)",
    )
    serving.add_argument(
        "--grace-period-seconds",
        type=_seconds,
        metavar="SECONDS",
        default=25.0,
        help="after SIGTERM, time to answer what was accepted; below the pod's own 30 (default: %(default)g)",
    )
    serving.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info"
    )

    batching = result.add_argument_group("batching and limits (tokens)")
    batching.add_argument(
        "--max-batch-tokens",
        type=_count,
        metavar="N",
        default=16384,
        help="tokens of one forward, a shared prompt counted once; requests of all ranks are merged up to it. Decides "
        "the memory that activations take (default: %(default)s)",
    )
    batching.add_argument(
        "--deterministic",
        action="store_true",
        help="score each group alone: bit-identical results whatever else runs, at some cost in throughput",
    )
    batching.add_argument(
        "--head-chunk-tokens",
        type=_count,
        metavar="N",
        help="positions projected to the vocabulary at a time; logits take 4 bytes x this x vocabulary "
        "(default: what fits 256 MB on a GPU, 16 MB on a CPU)",
    )
    batching.add_argument(
        "--max-queued-tokens",
        type=_count,
        metavar="N",
        default=1048576,
        help="tokens that may wait; beyond it requests get 429 with Retry-After (default: %(default)s)",
    )
    batching.add_argument(
        "--max-request-tokens",
        type=_count,
        metavar="N",
        help="tokens of one request; more gets 413 (default: --max-queued-tokens)",
    )
    batching.add_argument(
        "--max-request-bytes",
        type=_count,
        metavar="N",
        help="bytes of one body; more gets 413 (default: 16 per token allowed)",
    )
    batching.add_argument(
        "--max-sequence-length",
        type=_count,
        metavar="N",
        help="tokens of a prompt with one completion; more gets 422 (default: the model's max_position_embeddings)",
    )
    batching.add_argument(
        "--request-timeout-seconds",
        type=_seconds,
        metavar="SECONDS",
        default=300.0,
        help="longest deadline of a request, waiting included; then 504 (default: %(default)g)",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server; returns the exit code."""
    values = vars(parser().parse_args(arguments))

    from grpo_refserver import logs

    logs.configure(values.pop("log_level"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_early)

    from grpo_refserver.settings import ConfigurationError, Settings  # numpy, and below torch: seconds

    try:
        settings = Settings(**values)
        if settings.tensor_parallel_size > 1:
            from grpo_refserver.tensor_parallel import start

            return start.run(sys.argv[1:] if arguments is None else arguments, settings)
        from grpo_refserver import server

        return server.run(settings)
    except ConfigurationError as error:
        from grpo_refserver import server

        return server.refuse(error)


def _end_early(number: int, _: FrameType | None) -> None:
    """Ends while nothing was accepted, until the server or the launcher of ranks has handlers of its own.

    Not by SystemExit, which an import could catch. Without a handler process 1 of a container would ignore SIGTERM.
    """
    log.info("ended before the start", extra={"signal": signal.Signals(number).name, "exit_code": 0})
    os._exit(0)


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, got {text}")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value < 65536:
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
