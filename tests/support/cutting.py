"""A proxy that takes lockstepd's answers away."""

import contextlib
import http.client
import http.server
import os
import subprocess
import threading
import urllib.parse

import harness


class Cutting:
    """Passes requests on to a daemon. Of `cut` POSTs, after the first `skip`, it takes the answer, calls `then` and lets nobody
    have it: the connection ends, or, with `status`, the client gets that of a proxy."""

    def __init__(self, daemon, cut=1, status=None, then=lambda: None, skip=0):
        self.daemon, self.cut, self.status, self.then, self.skip = daemon, cut, status, then, skip
        self.answers = []  # (path, Idempotency-Key, status) as the daemon gave them
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.pass_on()

            def do_POST(self):
                self.pass_on()

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items()
                           if name.lower() not in ("host", "connection", "content-length")}
                address = urllib.parse.urlsplit(proxy.daemon.url)
                onward = http.client.HTTPConnection(address.hostname, address.port, timeout=20 * harness.PATIENCE)
                with contextlib.closing(onward):
                    onward.request(self.command, self.path, body, headers)
                    answer = onward.getresponse()
                    data = answer.read()
                self.close_connection = True
                if self.command == "POST":
                    proxy.answers.append((self.path, self.headers.get("Idempotency-Key"), answer.status))
                    if proxy.skip < len(proxy.answers) <= proxy.skip + proxy.cut:
                        proxy.then()
                        if proxy.status is None:
                            return
                        self.send_error(proxy.status)
                        return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def environment(self):
        return {**os.environ, "LOCKSTEP_URL": self.url, "LOCKSTEP_TOKEN": self.daemon.token}

    def cli(self, *arguments):
        return subprocess.run([harness.BIN / "lockstep", *arguments], stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=60 * harness.PATIENCE, env=self.environment(), check=False)
