"""TLS between lockstepd and what connects to it: agents pin its certificate, people can too."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.parse

import events
import harness


def other_address():
    """An address of this machine that is not loopback; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: asks for the route
            address = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


class Always(harness.TestCase):
    """--tls always: the API and the agents on one loopback listener."""

    def setUp(self):
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        super().setUp()

    DAEMON_ARGUMENTS = ("--tls", "always")

    def test_a_job_runs_and_the_command_line_pins_the_certificate(self):
        self.assertTrue(self.daemon.url.startswith("https://127.0.0.1:"))
        job = self.daemon.submit(harness.command_job("hello", "/bin/echo", "over TLS"))
        self.daemon.wait_state(job["id"], "succeeded")
        self.assertIn("over TLS", self.daemon.rank_log(job["id"]))

        def show(**environment):
            return subprocess.run(
                [harness.BIN / "lockstep", "--data-dir", self.daemon.data, "show", job["id"], "--json"],
                env={**{k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}, **environment},
                capture_output=True, text=True, timeout=30, check=False)

        self.assertEqual(json.loads(show().stdout)["state"], "succeeded")
        refused = show(LOCKSTEP_FINGERPRINT="sha256:" + "0" * 64)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn(self.daemon.fingerprint, refused.stderr)

    def test_a_restart_keeps_the_certificate_and_a_new_one_reaches_running_agents(self):
        release = self.root / "release"
        job = self.daemon.submit(harness.command_job(
            "waits", "/bin/sh", "-c", f"while [ ! -e {release} ]; do sleep 0.05; done"))
        self.daemon.wait_state(job["id"], "running")
        first = self.daemon.fingerprint
        self.daemon.restart()
        self.assertEqual(self.daemon.fingerprint, first)
        self.daemon.kill9()
        for file in ("certificate.pem", "key.pem"):
            (self.daemon.data / "tls" / file).unlink()
        self.daemon.start()
        self.assertNotEqual(self.daemon.fingerprint, first)
        release.touch()
        self.daemon.wait_state(job["id"], "succeeded")

    def test_an_agent_that_expects_another_certificate_says_so_and_gives_up(self):
        attempt = self.root / "attempt"
        attempt.mkdir(mode=0o700)
        expected = "sha256:" + "0" * 64
        (attempt / "agent.json").write_text(json.dumps({
            "url": self.daemon.url, "ticket": "t", "job_id": "ls-01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "attempt": 1, "nodes": 1, "fingerprint": expected}))
        done = subprocess.run(
            [harness.BIN / "lockstep-agent", "run", "--attempt-dir", attempt, "--node", "0"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        wanted = f"shows certificate {self.daemon.fingerprint} but {expected} is expected"
        self.assertIn(wanted, done.stderr)
        self.assertIn(urllib.parse.urlsplit(self.daemon.url).netloc, done.stderr)

    def test_plain_http_at_the_tls_port_is_told_so(self):
        address = urllib.parse.urlsplit(self.daemon.url)
        plain = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
        plain.request("GET", "/healthz")
        answer = plain.getresponse()
        self.assertEqual((answer.status, answer.read()), (400, b"this port speaks TLS: use https://\n"))
        plain.close()
        self.assertTrue(self.daemon.reachable("/healthz"))


class Network(harness.TestCase):
    """People on loopback in the clear, agents on an address of the network."""

    def setUp(self):
        self.address = other_address()
        if self.address is None:
            self.skipTest("this machine has loopback only")
        self.DAEMON_ARGUMENTS = ("--agent-listen", f"{self.address}:0")
        super().setUp()

    def agents_url(self, job_id):
        file = next(pathlib.Path(self.daemon.data).glob(f"runs/{job_id}/a1/agent.json"))
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        return json.loads(file.read_text())

    def test_agents_come_over_tls_and_find_nothing_else_there(self):
        self.assertTrue(self.daemon.url.startswith("http://127.0.0.1:"))
        job = self.daemon.submit(harness.command_job("hello", "/bin/echo", "hi", resources={"nodes": 2}))
        self.daemon.wait_state(job["id"], "succeeded")
        told = self.agents_url(job["id"])
        self.assertTrue(told["url"].startswith(f"https://{self.address}:"), told)
        self.assertEqual(told["fingerprint"], (self.daemon.data / "fingerprint").read_text().strip())
        context = ssl.create_default_context(cafile=self.daemon.data / "tls" / "certificate.pem")
        port = urllib.parse.urlsplit(told["url"]).port
        for path in ("/v1/jobs", "/healthz", "/metrics"):
            connection = http.client.HTTPSConnection(self.address, port, timeout=20, context=context)
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.daemon.token}"})
            self.assertEqual(connection.getresponse().status, 404, path)
            connection.close()


def make_certificate(folder, name, days=30):
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", str(days), "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


class Renewed(harness.TestCase):
    """SIGHUP: a configured certificate that has been renewed is shown without a restart."""

    def setUp(self):
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificate, self.key = make_certificate(self.folder, "site")
        self.DAEMON_ARGUMENTS = ("--tls", "always", "--tls-certificate", self.certificate, "--tls-key", self.key)
        trusted = self.certificate

        def connect(daemon, timeout=20):
            address = urllib.parse.urlsplit(daemon.url)
            return http.client.HTTPSConnection(address.hostname, address.port, timeout=timeout,
                                               context=ssl.create_default_context(cafile=trusted))

        self.addCleanup(setattr, harness.TlsDaemon, "connect", harness.TlsDaemon.connect)
        harness.TlsDaemon.connect = connect
        super().setUp()

    def not_after(self):
        [line] = [line for line in self.daemon.text("/metrics").splitlines()
                  if line.startswith("lockstep_certificate_not_after_timestamp_seconds ")]
        return float(line.split()[1])

    def shown(self):
        address = urllib.parse.urlsplit(self.daemon.url)
        return ssl.get_server_certificate((address.hostname, address.port), timeout=20)

    def beside(self, *command, **more):
        """A program that finds lockstepd by its data directory."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
        process = subprocess.Popen(
            command, env={**environment, "HOME": str(self.root), "LOCKSTEP_DATA_DIR": str(self.daemon.data), **more},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def told(self, job):
        return json.loads((self.daemon.data / "runs" / job["id"] / "a1" / "agent.json").read_text())["fingerprint"]

    def test_it_is_shown_and_agents_and_running_jobs_do_not_notice(self):
        release = self.root / "release"
        job = self.daemon.submit(harness.command_job(
            "waits", "/bin/sh", "-c", f"while [ ! -e {release} ]; do sleep 0.05; done"))
        self.daemon.wait_state(job["id"], "running")
        first, first_shown = self.daemon.fingerprint, self.shown()
        first_end = self.not_after()
        for made, place in zip(make_certificate(self.folder, "next", 90), (self.certificate, self.key)):
            made.replace(place)
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        harness.wait_until(lambda: self.told(job) != first, 20, "the agents are told of the new certificate")
        self.assertNotEqual(self.shown(), first_shown)
        self.assertEqual(self.shown().strip(), self.certificate.read_text().strip())
        self.assertEqual(self.told(job), self.daemon.fingerprint)
        self.assertGreaterEqual(self.not_after(), first_end + 86400, "of the one that is shown")
        # One that is no good changes nothing; the next job's agent meets what is shown.
        second = self.daemon.fingerprint
        self.key.write_text("no key")
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        harness.wait_until(lambda: "the certificate stays what it was" in self.daemon.log.read_text(), 20,
                           "it says so")
        after = self.daemon.submit(harness.command_job("after", "/bin/true"))
        self.daemon.wait_state(after["id"], "succeeded")
        self.assertEqual(self.told(after), second)
        release.touch()
        events.assert_undisturbed(self, self.daemon.wait_state(job["id"], "succeeded"))


    def test_nor_does_who_follows_a_job_on_its_machine(self):
        # They ended with code 5, since they had pinned the certificate of before.
        release = self.root / "release"
        job = self.daemon.submit(harness.command_job(
            "waits", "/bin/sh", "-c", f"echo first; while [ ! -e {release} ]; do sleep 0.05; done; echo last"))
        log = self.beside(harness.BIN / "lockstep", "logs", job["id"], "--follow")
        self.assertEqual(log.stdout.readline(), "first\n")
        asks = self.beside(sys.executable, "-c", "import lockstep\n"
                           "daemon = lockstep.Daemon()\n"
                           "print(daemon.whoami()['user'], flush=True)\n"
                           "input()\n"
                           "print(daemon.whoami()['user'], flush=True)\n",
                           PYTHONPATH=str(harness.PYTHON_PACKAGE), PYTHONDONTWRITEBYTECODE="1")
        user = asks.stdout.readline()
        first = self.daemon.fingerprint
        for made, place in zip(make_certificate(self.folder, "next", 90), (self.certificate, self.key)):
            made.replace(place)
        os.kill(self.daemon.process.pid, signal.SIGHUP)
        harness.wait_until(lambda: self.told(job) != first, 20, "the certificate has been renewed")
        release.touch()
        self.assertEqual(asks.communicate("\n", timeout=60 * harness.PATIENCE)[0], user)
        self.assertEqual(log.communicate(timeout=60 * harness.PATIENCE)[0], "last\n")
        self.assertEqual((log.returncode, asks.returncode), (0, 0))


class Settings(harness.TestCase):
    """What does not fit ends the start with code 2 and a reason."""

    def refused(self, *arguments):
        done = subprocess.run(
            [harness.BIN / "lockstepd", "--listen", "127.0.0.1:0", "--data-dir", self.root / "other",
             "--tls", "always", *arguments],
            capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_a_certificate_has_its_key(self):
        certificate, key = make_certificate(self.root, "one")
        _, other = make_certificate(self.root, "two")
        self.assertIn("both or neither", self.refused("--tls-certificate", certificate))
        self.assertIn("the key is not the certificate's",
                      self.refused("--tls-certificate", certificate, "--tls-key", other))
        self.assertIn("missing.key", self.refused("--tls-certificate", certificate,
                                                  "--tls-key", self.root / "missing.key"))
        self.assertIn("agent-url", self.refused("--agent-url", "ftp://x"))
        self.assertIn("agent-url: https", self.refused("--agent-url", "http://127.0.0.1:1"))
        daemon = harness.TlsDaemon(self.root / "configured", "--tls", "always", "--tls-certificate", certificate,
                           "--tls-key", key)
        daemon.root.mkdir()
        self.addCleanup(daemon.clean_up)
        daemon.connect = lambda timeout=20: http.client.HTTPSConnection(
            "127.0.0.1", urllib.parse.urlsplit(daemon.url).port, timeout=timeout,
            context=ssl.create_default_context(cafile=certificate))
        daemon.start()
        self.assertFalse((daemon.data / "tls").exists())
        shown = subprocess.run(["openssl", "x509", "-in", certificate, "-noout", "-fingerprint", "-sha256"],
                               capture_output=True, text=True, check=True).stdout
        self.assertEqual(daemon.fingerprint,
                         "sha256:" + shown.split("=")[1].strip().replace(":", "").lower())


if __name__ == "__main__":
    harness.main()
