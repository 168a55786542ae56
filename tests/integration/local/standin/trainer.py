"""Stand-in for `grpo-trainer`, for tests of how processes are handled: it trains nothing.

What it does is in STANDIN_TRAINER, a JSON object `{"<attempt>-<pod>": behaviour}`; all others succeed. Behaviours:
succeed; exit N; wait (until SIGTERM, then a file `saved-<attempt>-<pod>` and 75); stubborn (does not heed SIGTERM).
Pods that end by themselves do so only once all have started, as ranks do that meet at the start.
"""

import http.server
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from grpo_api import env
from grpo_api.progress import Progress, Termination

output = Path(os.environ[env.GRPO_OUTPUT_DIR])
attempt, index = int(os.environ[env.GRPO_ATTEMPT]), int(os.environ[env.PET_NODE_RANK])
pods = int(os.environ[env.PET_NNODES])
config = json.loads(Path(os.environ[env.GRPO_CONFIG]).read_text())
behaviour = json.loads(os.environ.get("STANDIN_TRAINER", "{}")).get(f"{attempt}-{index}", "succeed")


def end(code: int, reason: str, message: str, model_path: str | None = None) -> None:
    words = Termination(reason=reason, message=message, rank=index, exit_code=code, step=2, model_path=model_path)
    Path(os.environ[env.GRPO_TERMINATION_LOG]).write_text(words.to_log())
    sys.exit(code)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        progress = Progress(attempt=attempt, phase="training", step=1, total_steps=2, reward=0.25)
        body = progress.model_dump_json(by_alias=True).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
asked = threading.Event()
if behaviour == "wait":
    signal.signal(signal.SIGTERM, lambda *_: asked.set())

with (output / "started").open("a") as started:
    told = {
        "attempt": attempt,
        "pod": index,
        "pid": os.getpid(),
        "uid": config["metadata"]["uid"],
        "environment": {name: os.environ.get(name) for name in env.RESERVED},
        "pythonpath": os.environ.get("PYTHONPATH"),
        "referenceReady": (output / "reference-ready").exists(),
    }
    started.write(json.dumps(told) + "\n")

if index == 0:
    port = int(os.environ[env.GRPO_PROGRESS_PORT])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()

if behaviour == "succeed" or behaviour.startswith("exit "):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = (output / "started").read_text().splitlines()
        if sum(json.loads(line)["attempt"] == attempt for line in lines) == pods:
            break
        time.sleep(0.02)
    else:
        end(75, "PeerLost", "the others did not start")
if behaviour == "succeed":
    end(0, "Succeeded", "done", str(output / "final") if index == 0 else None)
if behaviour.startswith("exit "):
    code = int(behaviour.split()[1])
    end(code, "RewardError" if code == 65 else "Crashed", "ValueError: boom")
if behaviour == "wait" and asked.wait(120):
    (output / f"saved-{attempt}-{index}").touch()
    end(75, "Terminated", "asked to end, saved")
time.sleep(120)
