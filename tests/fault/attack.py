"""What somebody may do to a lockstepd that is at work, and what an honest user notices of it.

Everything at once and from this machine, so that lockstepd, attackers and the honest user share its cores: thousands of
connections that send a byte now and then, recorded ClientHellos, announced bodies of 1 MiB, and a user who submits sweeps of
1,000 jobs. The honest user asks every 20 ms on a connection that is open, as the page and the command line do.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse

import harness

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(SOURCE / "tests/integration"))
from test_denial import FFDHE8192, X25519, Ticker, client_hello, memory_mib, percentile  # noqa: E402

BOUND_MS = 50


class Slow:
    """Connections that are a request which never ends, a byte at a time."""

    def __init__(self, where, count):
        self.where, self.count, self.open, self.made = where, count, [], 0

    def refill(self):
        for _ in range(50):
            if len(self.open) >= self.count:
                return
            with contextlib.suppress(OSError):
                peer = socket.create_connection(self.where, timeout=5)
                peer.setblocking(False)
                peer.send(b"\x16\x03\x01\x02\x00")
                self.open.append(peer)
                self.made += 1

    def trickle(self):
        for peer in self.open[:200]:
            try:
                peer.send(b"\x01")
            except BlockingIOError:
                pass
            except OSError:
                self.open.remove(peer)
                peer.close()
        self.open = self.open[200:] + self.open[:200]
        self.refill()


def ask(daemon, seconds, times):
    connection = daemon.connect(timeout=60)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        begun = time.monotonic()
        connection.request("GET", "/v1/jobs?limit=1", headers={"Authorization": f"Bearer {daemon.token}"})
        answer = connection.getresponse()
        answer.read()
        times.append(((time.monotonic() - begun) * 1000, answer.status))
        time.sleep(0.02)
    connection.close()


def lag(daemon):
    """Timers of the control thread so far: all, and those that were more than 25 ms late."""
    text = daemon.text("/metrics")
    counted = {float(bound): int(count) for bound, count in
               re.findall(r'lockstep_event_loop_lag_seconds_bucket\{le="([0-9.]+)"\} (\d+)', text)}
    total = int(re.search(r"lockstep_event_loop_lag_seconds_count (\d+)", text)[1])
    return total, total - counted[0.025]


def sweep(number):
    return {"name": f"sweep-{number}", "framework": "command", "command": ["/bin/true"],
            "environment": {"PADDING": "x" * 50_000},
            "sweep": {"parameters": {"environment.LR": [str(value) for value in range(1000)]}}}


def main(options):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="attack-"))
    daemon = harness.TlsDaemon(folder, "--tls", "always", "--local-cores", "1", "--shared-account",
                               "--user-submissions", "100000", "--user-jobs", "100000")
    daemon.start()
    try:
        return measure(daemon, options)
    finally:
        daemon.clean_up()


def measure(daemon, options):
    address = urllib.parse.urlsplit(daemon.url)
    where = (address.hostname, address.port)
    other = daemon.api("POST", "/v1/tokens", {"name": "eve", "user": "eve", "role": "user"})[1]["token"]
    # One that runs keeps the others waiting.
    daemon.submit(harness.command_job("holds", "/bin/sleep", "100000"))
    held = []

    def hello(group):
        recorded = client_hello(group)

        def send():
            peer = socket.create_connection(where, timeout=5)
            peer.sendall(recorded)
            held.append(peer)
            if len(held) > 100:
                held.pop(0).close()
        return send

    def bodies():
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        peer = context.wrap_socket(socket.create_connection(where, timeout=5))
        peer.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\nx")
        held.append(peer)

    sweeps = [0]

    def submit():
        connection = daemon.connect(timeout=120)
        connection.request("POST", "/v1/jobs", json.dumps(sweep(sweeps[0])),
                           {"Authorization": f"Bearer {other}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        sweeps[0] += answer.status == 201
        connection.close()

    slow = Slow(where, options.connections)
    quiet, attacked = [], []
    ask(daemon, options.seconds / 4, quiet)
    before, memory = lag(daemon), memory_mib(daemon.process.pid)
    with contextlib.ExitStack() as attackers:
        attackers.enter_context(Ticker(20, slow.trickle))
        attackers.enter_context(Ticker(10, hello(FFDHE8192)))
        attackers.enter_context(Ticker(30, hello(X25519)))
        attackers.enter_context(Ticker(10, bodies))
        attackers.enter_context(Ticker(0.2, submit))
        asking = threading.Thread(target=ask, args=(daemon, options.seconds, attacked))
        asking.start()
        asking.join()
    connections = len(slow.open)
    for one in held + slow.open:
        one.close()
    harness.wait_until(lambda: daemon.reachable("/healthz"), 30, "a new connection is served again")
    after = lag(daemon)
    times = [one for one, _ in attacked]
    calm = [one for one, _ in quiet]
    refused = sum(status != 200 for _, status in attacked)
    p99 = percentile(times, 0.99)
    print(f"cores {os.cpu_count()}, load {os.getloadavg()[0]:.1f}; connections held {connections}, made {slow.made}; "
          f"sweeps of 1,000 taken {sweeps[0]}")
    print(f"honest user, ms: quiet p50 {statistics.median(calm):.1f} p99 {percentile(calm, 0.99):.1f}; "
          f"attacked p50 {statistics.median(times):.1f} p99 {p99:.1f} max {max(times):.1f}, "
          f"{len(times)} asked, {refused} not answered with 200; p99 is {p99 / percentile(calm, 0.99):.1f} x quiet")
    print(f"control thread: {after[1] - before[1]} of {after[0] - before[0]} timers more than 25 ms late; "
          f"memory {memory:.0f} -> {memory_mib(daemon.process.pid):.0f} MiB (peak {memory_mib(daemon.process.pid, 'VmHWM'):.0f})")
    print(f"bound {BOUND_MS} ms: {'kept' if p99 <= BOUND_MS and not refused else 'missed'}")
    return 0 if p99 <= BOUND_MS and not refused else 1
