# size: readers of snappy and protobuf, and one test for each failure
"""lockstepd sends its series to Debian's Prometheus (--web.enable-remote-write-receiver), and to receivers
that refuse, fail, throttle or never answer."""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import threading
import time
import unittest
import urllib.parse
import urllib.request

import harness
from harness import wait_until

STALE = 0x7FF0000000000002


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def unsnappy(data):
    """The block format, https://github.com/google/snappy/blob/main/format_description.txt."""
    size, at = varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at:at + extra], "little")
                at += extra
            out += data[at:at + length + 1]
            at += length + 1
            continue
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at]
            at += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at:at + width], "little")
            at += width
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)


def fields(data):
    """(number, value) of a protobuf message; bytes for what has a length or 8 bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = (8, at) if tag & 7 == 1 else varint(data, at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, value


def read_request(body):
    """[(labels as a list of pairs, value, bits of the value, time)]."""
    out = []
    for _, series in fields(unsnappy(body)):
        labels, sample = [], {}
        for number, value in fields(series):
            if number == 1:
                pair = dict(fields(value))
                labels.append((pair[1].decode(), pair[2].decode()))
            else:
                sample = dict(fields(value))
        bits = int.from_bytes(sample[1], "little")
        out.append((labels, struct.unpack("<d", sample[1])[0], bits, sample[2]))
    return out


class Receiver:
    """Answers every request as `answer(number)` says: (status, headers) or None = never; keeps what came."""

    def __init__(self, answer):
        self.requests = []  # (time, headers, body)
        self.ended = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((time.monotonic(), dict(self.headers), body))
                answered = answer(len(outer.requests))
                if answered is None:
                    outer.ended.wait()
                    return
                status, headers = answered
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "3")
                self.end_headers()
                self.wfile.write(b"no\n")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/receive?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def samples(self):
        return [sample for _, _, body in list(self.requests) for sample in read_request(body)]


class Prometheus:
    """Debian's, that scrapes nothing and receives."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
        self.url = f"http://127.0.0.1:{harness.quiet_port()}"
        self.process = None

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address={self.url[7:]}",
                 "--web.enable-remote-write-receiver"], stdout=log, stderr=log, cwd=self.folder)
        wait_until(self.ready, 30, "Prometheus is ready")

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError((self.folder / "log").read_text())
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url + "/-/ready", timeout=5) as answer:
                return answer.status == 200
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def query(self, expression):
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=20) as answer:
            return json.load(answer)["data"]["result"]


class Base(harness.TestCase):
    def start_with(self, url, *arguments, interval="0.3"):
        """self.daemon again, with a receiver."""
        self.daemon.stop()
        self.daemon.arguments = ("--remote-write", url, "--remote-write-interval", interval, *arguments)
        self.daemon.start()

    def counter(self, name):
        """lockstep_remote_write_<name> as /metrics has it."""
        for line in self.daemon.text("/metrics").splitlines():
            if line.startswith(f"lockstep_remote_write_{name} "):
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no lockstep_remote_write_{name}")

    def job_that_reports(self):
        job = self.daemon.submit(harness.python_job("sent", "reports.py", self.root, recovery={},
                                                    resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        wait_until(lambda: all((self.root / f"pid-2-{rank}").exists() for rank in range(2)), 60,
                   "the second generation runs")
        return job

    def end(self, job):
        (self.root / "go").touch()
        self.daemon.wait_state(job, "succeeded", 60)

    def receiver(self, answer):
        receiver = Receiver(answer)
        self.addCleanup(receiver.close)
        return receiver


@unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed (Debian package prometheus)")
class ToPrometheus(Base):
    def setUp(self):
        super().setUp()
        self.prometheus = Prometheus(self.root / "prometheus")
        self.prometheus.start()
        self.addCleanup(lambda: self.prometheus.kill())
        self.start_with(self.prometheus.url + "/api/v1/write")

    def test_series_arrive_with_their_values_and_end_with_the_job(self):
        query = self.prometheus.query
        job = self.job_that_reports()
        of_job = f'{{job_id="{job}"}}'
        # The first generation reports steps too: until its restart has come, the job may yet be recovering.
        wait_until(lambda: len(query(f"lockstep_rank_step{of_job} > 5")) == 2
                   and query(f"lockstep_job_restarts_total{of_job} == 1")
                   and query('lockstep_jobs{state="running"} == 1'), 30, "both ranks of the second generation have come")
        rank = query(f'lockstep_rank_loss{{job_id="{job}",rank="1"}}')[0]
        port = urllib.parse.urlsplit(self.daemon.url).port
        self.assertEqual(rank["metric"], {"__name__": "lockstep_rank_loss", "job": "lockstep", "rank": "1",
                                          "instance": f"{socket.gethostname()}:{port}", "job_id": job})
        # loss = 1 / (step + 1), both of one collection
        pairs = query(f'lockstep_rank_loss{of_job} * (lockstep_rank_step{of_job} + 1)')
        self.assertEqual(len(pairs), 2)
        for pair in pairs:
            self.assertAlmostEqual(float(pair["value"][1]), 1, places=6)
        self.assertEqual(query(f"lockstep_job_ranks_expected{of_job}")[0]["value"][1], "2")
        self.assertEqual(query(f"lockstep_rank_info{of_job}")[0]["metric"]["node"], self.daemon.get(
            f"/v1/jobs/{job}/ranks")["items"][0]["node"])
        # The daemon's own are for who scrapes it.
        self.assertEqual(query("lockstep_build_info"), [])

        (self.root / "nan").touch()
        wait_until(lambda: query(f'lockstep_rank_loss{{job_id="{job}",rank="0"}}')[0]["value"][1] == "NaN", 30,
                   "NaN arrives as a value, not as the end of its series")

        self.end(job)
        ended = time.monotonic()
        wait_until(lambda: not query(of_job), 20, "its series are stale")
        print(f"stale {time.monotonic() - ended:.1f} s after the end, at 0.3 s a collection")
        self.assertTrue(query('lockstep_jobs{state="succeeded"} == 1'))
        self.assertGreater(self.counter("samples_total"), 100)
        self.assertGreater(self.counter("last_success_timestamp_seconds"), time.time() - 20)
        for reason in ("queue_full", "refused", "stopping"):
            self.assertEqual(self.counter(f'dropped_total{{reason="{reason}"}}'), 0)

    def test_what_was_collected_while_the_receiver_was_down_comes_later_with_its_time(self):
        self.job_that_reports()
        query = self.prometheus.query
        wait_until(lambda: query("lockstep_jobs_submitted_total"), 30, "series have come")
        down = time.time()
        self.prometheus.kill()
        waiting = set()  # each collection adds some

        def several_wait():
            waiting.add(self.counter("pending_samples"))
            return len(waiting) > 4 and max(waiting) > 500

        wait_until(several_wait, 30, "samples of several collections wait")
        self.assertGreater(self.counter('failed_total{reason="network"}'), 0)
        up = time.time()
        self.prometheus.start()
        wait_until(lambda: self.counter("pending_samples") == 0, 30, "it has caught up")
        times = [stamp for stamp, _ in query("lockstep_jobs_submitted_total[2m]")[0]["values"]]
        within = [stamp for stamp in times if down < stamp < up]
        # One every 0.3 s, but for what a busy machine makes of it: no rate, and no long gap.
        self.assertGreaterEqual(len(within), 3)
        self.assertLess(max(b - a for a, b in zip(within, within[1:])), 3 * harness.PATIENCE)
        self.assertEqual(self.counter('dropped_total{reason="queue_full"}'), 0)
        self.assertEqual(self.counter('dropped_total{reason="refused"}'), 0)


class ToReceivers(Base):
    def test_a_request_is_as_the_standard_has_it_and_a_job_that_ends_is_marked(self):
        receiver = self.receiver(lambda number: (204, {}))
        secret = self.root / "token"
        secret.write_text("open-sesame\n")
        self.start_with(receiver.url, "--remote-write-token-file", secret)
        job = self.job_that_reports()

        def of(name, **labels):
            wanted = {"__name__": name, **labels}.items()
            return [sample for sample in receiver.samples() if wanted <= dict(sample[0]).items()]

        wait_until(lambda: of("lockstep_rank_step", job_id=job, rank="1"), 30, "a rank's step has come")
        _, headers, _ = receiver.requests[0]
        self.assertEqual(headers["Content-Type"], "application/x-protobuf")
        self.assertEqual(headers["Content-Encoding"], "snappy")
        self.assertEqual(headers["X-Prometheus-Remote-Write-Version"], "0.1.0")
        self.assertTrue(headers["User-Agent"].startswith("lockstep/"))
        self.assertEqual(headers["Authorization"], "Bearer open-sesame")
        secret.write_text("renewed\n")
        wait_until(lambda: receiver.requests[-1][1]["Authorization"] == "Bearer renewed", 30, "the new token is used")

        self.end(job)
        marked = wait_until(lambda: [s for s in of("lockstep_rank_step", job_id=job, rank="1") if s[2] == STALE], 30,
                            "the series is marked as ended")
        self.assertEqual(len(marked), 1)
        by_series = {}
        for labels, value, bits, stamp in receiver.samples():
            self.assertEqual(labels, sorted(labels))
            self.assertEqual(dict(labels)["job"], "lockstep")
            by_series.setdefault(tuple(labels), []).append((stamp, value, bits))
        for labels, samples in by_series.items():
            stamps = [stamp for stamp, _, _ in samples]
            self.assertEqual(stamps, sorted(set(stamps)), labels)  # in order, none twice
            ends = dict(labels).get("job_id") == job
            self.assertEqual(samples[-1][2] == STALE, ends, labels)

    def test_what_is_refused_is_dropped_and_counted_and_the_next_is_sent(self):
        receiver = self.receiver(lambda number: (400 if number == 1 else 204, {}))
        self.start_with(receiver.url)
        wait_until(lambda: len(receiver.requests) >= 3, 30, "later ones are sent")
        bodies = [body for _, _, body in receiver.requests]
        self.assertEqual(bodies.count(bodies[0]), 1)
        wait_until(lambda: self.counter("samples_total") > 0, 30, "and taken")
        self.assertEqual(self.counter('failed_total{reason="refused"}'), 1)
        self.assertEqual(self.counter('dropped_total{reason="refused"}'), len(read_request(bodies[0])))
        self.assertIn("samples are not taken", self.daemon.log_tail())
        self.assertIn("samples are taken", self.daemon.log_tail())

    def test_a_failure_of_the_receiver_is_tried_again_until_it_is_taken(self):
        receiver = self.receiver(lambda number: (500 if number <= 3 else 204, {}))
        self.start_with(receiver.url)
        wait_until(lambda: len(receiver.requests) >= 6, 30, "it goes on")
        times = [when for when, _, _ in receiver.requests]
        bodies = [body for _, _, body in receiver.requests]
        self.assertEqual(len(set(bodies[:4])), 1, "the same request, before any newer one")
        self.assertNotEqual(bodies[4], bodies[3])
        for pause, (a, b) in zip((0.25, 0.5, 1), zip(times, times[1:])):
            self.assertGreaterEqual(b - a, pause - 0.02)
        self.assertEqual(self.counter('failed_total{reason="status"}'), 3)
        self.assertEqual(self.counter('dropped_total{reason="refused"}'), 0)

    def test_a_receiver_that_asks_for_time_gets_it(self):
        receiver = self.receiver(lambda number: (429, {"Retry-After": "3"}) if number == 1 else (204, {}))
        self.start_with(receiver.url)
        wait_until(lambda: len(receiver.requests) >= 2, 30, "it is tried again")
        times = [when for when, _, _ in receiver.requests]
        bodies = [body for _, _, body in receiver.requests]
        self.assertGreaterEqual(times[1] - times[0], 2.95)
        self.assertEqual(bodies[0], bodies[1])

    def test_a_receiver_that_never_answers_holds_nobody_up(self):
        receiver = self.receiver(lambda number: None)
        self.start_with(receiver.url, "--remote-write-timeout", "600")
        wait_until(lambda: receiver.requests, 30, "it is asked")
        wait_until(lambda: self.counter("pending_samples") > 100, 30, "samples wait")
        slowest = 0
        for _ in range(50):
            begun = time.monotonic()
            self.assertEqual(self.daemon.request("GET", "/healthz")[0], 200)
            slowest = max(slowest, time.monotonic() - begun)
        self.assertLess(slowest, harness.PATIENCE)
        self.assertEqual(len(receiver.requests), 1)
        begun = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        took = time.monotonic() - begun
        print(f"stopped within {took:.2f} s of SIGTERM")
        self.assertGreater(took, 1.5)  # it did wait for the receiver
        self.assertLess(took, 4 * harness.PATIENCE)
        self.assertIn("not sent in time", self.daemon.log_tail())

    @unittest.skipIf(os.geteuid(), "only root may give lockstepd another /etc/resolv.conf")
    def test_a_name_server_that_is_silent_does_not_hold_up_the_end(self):
        """It ended when the name server's half minute was over: systemd kills after a quarter."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            try:
                silent.bind(("127.0.0.99", 53))
            except OSError as error:
                self.skipTest(f"a name server of this machine has port 53 of all addresses: {error}")
            silent.settimeout(30)
            (self.root / "resolv.conf").write_text("nameserver 127.0.0.99\noptions timeout:30 attempts:2\n")
            self.daemon.command = lambda plain=self.daemon.command: [
                "unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"',
                self.root / "resolv.conf", *plain()]
            self.start_with("http://receiver.example:9090/api/v1/write")
            self.assertIn(b"receiver", silent.recv(512))
            self.assertEqual(self.daemon.stop(10), 0)

    def test_too_long_an_answer_is_a_failure_and_tried_again(self):
        receiver = self.receiver(lambda number: None if number == 1 else (204, {}))
        self.start_with(receiver.url, "--remote-write-timeout", "3")
        wait_until(lambda: len(receiver.requests) >= 3, 30, "it is tried again")
        bodies = [body for _, _, body in receiver.requests]
        self.assertEqual(bodies[0], bodies[1])
        self.assertEqual(self.counter('failed_total{reason="network"}'), 1)

    def test_what_waits_is_sent_when_the_daemon_stops(self):
        receiver = self.receiver(lambda number: (204, {}))
        self.start_with(receiver.url, interval="3600")
        wait_until(lambda: len(receiver.requests) == 1, 30, "the first collection comes at once")
        self.daemon.submit(harness.command_job("held", "sleep", "60"))
        begun = time.monotonic()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertLess(time.monotonic() - begun, 4 * harness.PATIENCE)
        last = {dict(labels)["__name__"]: value for labels, value, _, _ in read_request(receiver.requests[-1][2])}
        self.assertEqual(last["lockstep_jobs_submitted_total"], 1)
        # A restart is not the end of a job: its series go on.
        self.assertFalse([s for s in receiver.samples() if s[2] == STALE])

    def test_settings_that_cannot_be_are_refused_by_name(self):
        self.daemon.stop()
        empty = self.root / "empty"
        empty.touch()
        good = "http://127.0.0.1:9/w"
        for arguments, said in (
                (("--remote-write", "127.0.0.1:9090/api/v1/write"), "remote-write: must begin with http"),
                (("--remote-write", "http://u:p@h/w"), "remote-write: "),
                (("--remote-write", "http://h:99999/w"), "remote-write: the port"),
                (("--remote-write-token-file", empty), "remote-write: the URL is missing"),
                (("--remote-write", good, "--remote-write-token-file", empty), "remote-write-token-file: "),
                (("--remote-write", good, "--remote-write-token-file", "/nowhere"), "remote-write-token-file: "),
                (("--remote-write", good, "--remote-write-user", "u"), "remote-write-password-file"),
                (("--remote-write", good, "--remote-write-interval", "0"), "--remote-write-interval")):
            done = subprocess.run([harness.BIN / "lockstepd", "--data-dir", self.root / "other", *map(str, arguments)],
                                  capture_output=True, text=True, timeout=30, check=False)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(said, done.stdout + done.stderr, arguments)
        self.assertFalse(pathlib.Path(self.root / "other").exists())

    def test_the_file_of_settings_has_it_too(self):
        receiver = self.receiver(lambda number: (204, {}))
        password = self.root / "password"
        password.write_text("open sesame\n")
        config = self.root / "lockstepd.conf"
        config.write_text(f'remote-write = "{receiver.url}"\nremote-write-user = "Aladdin"\n'
                          f'remote-write-password-file = "{password}"\nremote-write-interval = 0.3\n')
        self.daemon.stop()
        self.daemon.arguments = ("--config", config)
        self.daemon.start()
        wait_until(lambda: receiver.requests, 30, "it is sent to")
        self.assertEqual(receiver.requests[0][1]["Authorization"], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")


if __name__ == "__main__":
    harness.main()
