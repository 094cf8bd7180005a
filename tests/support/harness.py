"""Real lockstepd, agents and ranks for the integration tests. Standard library only.

    class Submit(harness.TestCase):
        def test_runs(self):
            job = self.daemon.submit({"name": "first", "framework": "native"})
            self.daemon.wait_state(job["id"], "succeeded")

Each test has a daemon of its own on a free port with a temporary data directory. Waiting is asking
again until a deadline; nothing waits for a fixed time. When a test fails, the logs of its daemon and
of its agents are printed. Whatever is left over is killed at the end, found by the data directory in
its command line.

Environment: LOCKSTEP_BIN = folder of the programs (build/bin); LOCKSTEP_TEST_PATIENCE; LOCKSTEP_TEST_GPU (gpu_tests.py).
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.parse

import gpu_tests

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", SOURCE / "build" / "bin"))
FIXTURES = SOURCE / "tests" / "fixtures"
PYTHON_PACKAGE = SOURCE / "job" / "rank" / "python"
PYTHON = os.environ.get("LOCKSTEP_PYTHON", "/usr/bin/python3")  # Debian's has python3-torch
FINAL = ("succeeded", "failed", "cancelled")


class Unreachable(Exception):
    """The daemon did not answer: it is down or went down during the request."""


# Deadlines are for what never comes, not promises: a machine that also compiles may be three times as slow
# as the one they were chosen on. A test that promises a time measures it itself.
PATIENCE = float(os.environ.get("LOCKSTEP_TEST_PATIENCE", "3"))


def write_whole(path, text):
    """A reader finds all of it or no file."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.rename(path)


def wait_until(ask, seconds, what, patience=PATIENCE):
    """Asks until the answer is true and returns it; fails after `seconds` times `patience`: 1 where the
    time is a promise."""
    seconds *= patience
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def quiet_port():
    """A port for a server that is started a little later, or twice: below those that the kernel gives to
    whoever asks for any."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, low)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def processes_with(text):
    """Ids of the processes that have `text` in an argument of their command line."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def waiting_standbys(text):
    """Ids of the processes that wait to be ranks (recovery.warm_standby), with `text` in their command line: they have
    imported what they were to, and do not hear what is sent to ranks."""
    found = []
    for pid in processes_with(text):
        with contextlib.suppress(OSError):
            folder = pathlib.Path(f"/proc/{pid}")
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            deaf = int(status["SigIgn"], 16) >> signal.SIGTERM - 1 & 1
            if b"LOCKSTEP_STANDBY=" in (folder / "environ").read_bytes() and deaf and "sleeping" in status["State"]:
                found.append(pid)
    return sorted(found)


class Daemon:
    """One lockstepd and its data directory; may be killed and started again."""

    def __init__(self, root, *arguments):
        self.root = pathlib.Path(root)
        self.data = self.root / "data"
        self.log = self.root / "lockstepd.log"
        self.arguments = arguments
        self.preload = {}  # LD_PRELOAD and what the library reads, for the next start
        self.process = None
        self.url = None
        self.token = None

    def command(self):
        scheduler = [] if "--scheduler" in self.arguments else ["--scheduler", "local"]
        return [BIN / "lockstepd", "--listen", "127.0.0.1:0", "--data-dir", self.data,
                *scheduler, *self.arguments]

    def environment(self):
        return {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")} | self.preload

    # --- life -------------------------------------------------------------------------------
    def start(self, seconds=20):
        url_file = self.data / "url"
        url_file.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=self.environment())

        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"lockstepd ended with {self.process.returncode}:\n{self.log_tail()}")
            return url_file.exists() and url_file.read_text().strip()

        self.url = wait_until(listening, seconds, "lockstepd listens")
        self.token = (self.data / "token").read_text().strip()
        wait_until(lambda: self.reachable("/healthz"), seconds, "lockstepd is healthy")
        return self

    def reachable(self, path):
        with contextlib.suppress(Unreachable):
            return self.request("GET", path)[0] == 200
        return False

    def kill9(self):
        """As a power cut: no handler runs. Agents and ranks go on."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self):
        self.kill9()
        return self.start()

    def stop(self, seconds=15):
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self.process.wait(seconds * PATIENCE)

    def clean_up(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

        def gone():
            left = processes_with(str(self.root))
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        wait_until(gone, 10, "agents and ranks are gone")

    # --- HTTP -------------------------------------------------------------------------------
    def connect(self, timeout=20):
        address = urllib.parse.urlsplit(self.url)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=timeout * PATIENCE)

    def headers(self, extra=None):
        headers = {"Authorization": f"Bearer {self.token}"}
        headers.update(extra or {})
        return {name: value for name, value in headers.items() if value is not None}

    def request(self, method, path, body=None, headers=None, timeout=20):
        """(status, headers, bytes). `body`: bytes, or anything else as JSON. A header None is left out."""
        extra = dict(headers or {})
        if body is not None:
            extra.setdefault("Content-Type", "application/json")
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, self.headers(extra))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def api(self, method, path, body=None, headers=None):
        """(status, JSON or None)."""
        status, received, data = self.request(method, path, body, headers)
        is_json = "json" in received.get("Content-Type", "")
        return status, json.loads(data) if is_json else None

    def get(self, path):
        status, answer = self.api("GET", path)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {answer}")
        return answer

    def text(self, path):
        status, _, data = self.request("GET", path)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {data[:500]}")
        return data.decode()

    def submit(self, spec, headers=None):
        status, answer = self.api("POST", "/v1/jobs", spec, headers)
        if status != 201:
            raise AssertionError(f"submit: {status} {json.dumps(answer, indent=1)}")
        return answer

    def job(self, job_id):
        return self.get(f"/v1/jobs/{job_id}")

    def wait_for(self, job_id, condition, seconds=60, what="the job is as it should be"):
        """The job as soon as condition(job); fails at once if the job ends without."""

        def look():
            job = self.job(job_id)
            if condition(job):
                return job
            if job["state"] in FINAL:
                raise AssertionError(f"{what}: job ended as {json.dumps(job, indent=1)}")
            return None

        return wait_until(look, seconds, f"{what} ({job_id})")

    def wait_generation(self, job_id, number, seconds):
        """The first attempt's generation of that number, once its ranks run."""
        def runs(job):
            generations = job["attempts"][0]["generations"] if job["attempts"] else []
            return len(generations) >= number and generations[number - 1].get("running_at")
        return self.wait_for(job_id, runs, seconds, f"generation {number}")["attempts"][0]["generations"][number - 1]

    def wait_state(self, job_id, states, seconds=60):
        states = (states,) if isinstance(states, str) else states
        return self.wait_for(job_id, lambda job: job["state"] in states, seconds, f"state {states}")

    def series(self, job_id, metric="loss", **parameters):
        """{rank: [[x, min, max, last], …]}."""
        query = urllib.parse.urlencode({"metric": metric, **parameters})
        return {item["rank"]: item["points"]
                for item in self.get(f"/v1/jobs/{job_id}/series?{query}")["series"]}

    def events(self, job_id, after=0):
        return self.get(f"/v1/jobs/{job_id}/events?after={after}&limit=1000")["items"]

    def rank_log(self, job_id, rank=0):
        return self.text(f"/v1/jobs/{job_id}/logs?rank={rank}")

    def stream(self, path, headers=None, seconds=30):
        """Messages of an SSE stream as dictionaries; `seconds` of silence is an error."""
        connection = self.connect(seconds)
        connection.request("GET", path, headers=self.headers(headers))
        answer = connection.getresponse()
        if answer.status != 200:
            raise AssertionError(f"GET {path}: {answer.status} {answer.read()[:500]}")
        return Stream(connection, answer)

    # --- command line -----------------------------------------------------------------------
    def cli_environment(self):
        return {**os.environ, "LOCKSTEP_URL": self.url, "LOCKSTEP_TOKEN": self.token}

    def cli(self, *arguments, stdin=None, seconds=60, check=True):
        environment = self.cli_environment()
        given = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}  # nobody is there to be asked
        done = subprocess.run([BIN / "lockstep", *map(str, arguments)], **given, text=True, capture_output=True,
                              timeout=seconds * PATIENCE, env=environment, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"lockstep {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    # --- what happened ----------------------------------------------------------------------
    def log_tail(self, size=6000):
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def report(self):
        print(f"\n===== {self.log}\n{self.log_tail()}")
        for log in sorted(self.data.glob("runs/**/*.log"))[-12:]:
            text = log.read_bytes()[-2000:].decode(errors="replace") if log.stat().st_size < 1 << 30 else "(large)"
            print(f"===== {log.relative_to(self.data)}\n{text}")


class TlsDaemon(Daemon):
    """One whose API is spoken to over TLS, its own certificate trusted and nothing else."""

    def connect(self, timeout=20 * PATIENCE):
        address = urllib.parse.urlsplit(self.url)
        context = ssl.create_default_context(cafile=self.data / "tls" / "certificate.pem")
        return http.client.HTTPSConnection(address.hostname, address.port, timeout=timeout, context=context)

    @property
    def fingerprint(self):
        return (self.data / "fingerprint").read_text().strip()


class Stream:
    """One SSE stream; iterates over its messages: what has data. Comments and retry are left out."""

    def __init__(self, connection, answer):
        self.connection = connection
        self.answer = answer

    def __iter__(self):
        message = {}
        for raw in self.answer:
            line = raw.decode().rstrip("\r\n")
            if not line:
                if "data" in message:
                    yield message
                message = {}
            elif not line.startswith(":"):
                field, _, value = line.partition(":")
                message[field] = value.removeprefix(" ")

    def close(self):
        self.answer.close()
        self.connection.close()


class TestCase(unittest.TestCase):
    """A daemon per test, in self.daemon; self.root is its temporary folder."""

    DAEMON = None  # another class than Daemon
    DAEMON_ARGUMENTS = ()

    def setUp(self):
        for program in ("lockstepd", "lockstep-agent"):
            if not (BIN / program).exists():
                self.fail(f"{BIN / program} is not there: build first, or set LOCKSTEP_BIN")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.daemon = (self.DAEMON or Daemon)(self.root, *self.DAEMON_ARGUMENTS)
        self.addCleanup(self._finish)
        self.daemon.start()

    def _finish(self):
        result = self._outcome.result
        if any(test is self for test, _ in result.failures + result.errors):
            self.daemon.report()
        self.daemon.clean_up()

    def assert_problem(self, answer, status, pointer=None, text=None):
        """`answer`: (status, JSON) of api(); a problem document that names the field and says why."""
        got, problem = answer
        self.assertEqual(got, status, problem)
        self.assertIsInstance(problem, dict)
        for field in ("type", "title", "status", "detail"):
            self.assertIn(field, problem)
        self.assertEqual(problem["status"], status)
        if pointer is not None:
            self.assertIn(pointer, [error["pointer"] for error in problem.get("errors", [])], problem)
        if text is not None:
            self.assertIn(text, json.dumps(problem))


def command_job(name, *argv, **fields):
    """A job that runs argv on each rank."""
    return {"name": name, "framework": "command", "command": [str(a) for a in argv], **fields}


def python_job(name, script, *arguments, environment=None, **fields):
    """A job whose ranks run a Python script of tests/fixtures with the lockstep package at hand."""
    environment = {"PYTHONPATH": str(PYTHON_PACKAGE), **(environment or {})}
    return command_job(name, PYTHON, FIXTURES / script, *arguments, environment=environment, **fields)


def small_native_job(name="native", nodes=1, ranks_per_node=1, **train):
    """Lockstep's own trainer on few generated digits: seconds, not minutes."""
    return {"name": name, "framework": "native",
            "resources": {"nodes": nodes, "ranks_per_node": ranks_per_node},
            "train": {"train_samples": 2560, "test_samples": 128, "batch_size": 32, "epochs": 2,
                      "loader_workers": 0, **train}}


def has_module(name):
    return subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


def main():
    gpu_tests.main()
