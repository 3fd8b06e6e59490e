"""`python -m pypto_serving.cli`: records how it was started, then serves /health and one model.

`STANDIN_RECORD` names the file for arguments, environment and working folder. Flags of its own steer it:
`--ready-after S`, `--unwell-for S` (listens, but /health says 503), `--die-after S`, `--die-with CODE`,
`--ignore-term`, `--child S` (a child process outlives it), `--print MIB` (on each stream, at the start).
"""

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(float(sys.argv[1]))"


def record() -> None:
    path = os.environ.get("STANDIN_RECORD")
    if path:
        told = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": str(Path.cwd()), "python": sys.executable}
        Path(path).write_text(json.dumps(told), encoding="utf-8")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    well_at = 0.0
    model = ""

    def do_GET(self) -> None:
        well = time.monotonic() >= self.well_at
        if self.path == "/health":
            self.answer(200 if well else 503, {"status": "ok" if well else "not_ready"})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "pypto"}]})
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, {"port": self.connection.getsockname()[1], "choices": []})

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


def flags() -> argparse.Namespace:
    made = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--model", "--devices", "--host", "--served-model-name"):
        made.add_argument(name)
    made.add_argument("--port", type=int)
    made.add_argument("--show-startup-logs", action="store_true")
    made.add_argument("--ignore-term", action="store_true")
    for name in ("--ready-after", "--unwell-for", "--die-after", "--child", "--print"):
        made.add_argument(name, type=float, default=0.0)
    made.add_argument("--die-with", type=int, default=1)
    return made.parse_known_args()[0]


def die(code: int) -> None:
    print("CUDA out of memory", flush=True)
    os._exit(code)


def main() -> None:
    record()
    asked = flags()
    for _ in range(int(asked.print * 16)):
        for stream in (sys.stdout, sys.stderr):
            stream.write("x" * 65535 + "\n")
    print("the stand-in starts", flush=True)
    if asked.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if asked.child:
        subprocess.Popen([sys.executable, "-c", STUBBORN, str(asked.child)])
    if asked.die_after:
        threading.Timer(asked.die_after, die, [asked.die_with]).start()
    time.sleep(asked.ready_after)
    Handler.well_at = time.monotonic() + asked.unwell_for
    Handler.model = asked.served_model_name or str(asked.model).rstrip("/").rpartition("/")[2]
    http.server.ThreadingHTTPServer(("127.0.0.1", asked.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
