"""Stand-in for `grpo-refserver`: it answers /readyz with 503 twice and then with 200, and scores nothing.

STANDIN_REFERENCE: `exit N` ends it at the start.
"""

import http.server
import os
import signal
import sys
from pathlib import Path

behaviour = os.environ.get("STANDIN_REFERENCE", "")
if behaviour.startswith("exit "):
    print("the model cannot be read", flush=True)
    sys.exit(int(behaviour.split()[1]))
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))
run = Path(arguments["--token-file"]).parent.parent
asked = 0


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global asked
        asked += 1
        ready = asked > 2
        if ready:
            (run / "reference-ready").touch()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
(run / "reference-pid").write_text(str(os.getpid()))
http.server.ThreadingHTTPServer((arguments["--host"], int(arguments["--port"])), Answer).serve_forever()
