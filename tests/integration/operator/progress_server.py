"""Rank 0's progress endpoint, as the trainer serves it: real HTTP on loopback, with what the test says."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from grpo_api.progress import Progress


class ProgressServer:
    """Answers GET /progress with `progress`; 503 while it is None."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = outer.progress.model_dump_json(by_alias=True).encode() if outer.progress else b""
                self.send_response(200 if body and self.path == "/progress" else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
