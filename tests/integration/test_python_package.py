"""The Python package as people get it: wheel and sdist are built and installed in fresh environments without a
network, and what is installed submits jobs to a real lockstepd."""

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import socket
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import threading
import unittest
import zipfile

import harness

HERE = harness.PYTHON_PACKAGE


def venv_python():
    """A Python that makes virtual environments with pip in them: Debian's needs python3-venv."""
    for python in (sys.executable, shutil.which("python3") or ""):
        if python and subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode == 0:
            return python
    return None


VENV_PYTHON = venv_python()


@unittest.skipUnless(VENV_PYTHON, "no Python here makes virtual environments (python3-venv)")
class Package(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run([VENV_PYTHON, "-m", "venv", cls.folder / "venv"], check=True)
        cls.python = cls.folder / "venv" / "bin" / "python"
        source = cls.folder / "source"
        shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__", "hooks"))
        cls.pip("wheel", "--no-deps", "--wheel-dir", cls.folder / "dist", source)
        made = subprocess.run([cls.python, "-c", "import build_backend; print(build_backend.build_sdist('.'))"],
                              cwd=source, capture_output=True, text=True, check=True).stdout.strip()
        cls.sdist = source / made
        cls.wheel = next((cls.folder / "dist").glob("lockstep-*.whl"))
        cls.pip("install", cls.wheel)

    @classmethod
    def pip(cls, *arguments):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
        environment.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        done = subprocess.run([cls.python, "-m", "pip", "-q", *map(str, arguments)], capture_output=True, text=True,
                              env=environment, check=False)
        if done.returncode != 0:
            raise AssertionError(f"pip {arguments}: {done.stdout}{done.stderr}")

    def run_script(self, code, *arguments, check=True, **variables):
        """With the installed package, from another folder than the sources'. variables: None leaves one out."""
        script = self.root / "script.py"
        script.write_text(f"SECONDS = {60 * harness.PATIENCE}  # until what must come is given up\n" + textwrap.dedent(code))
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH",) and not k.startswith("LOCKSTEP_")}
        environment.update(LOCKSTEP_URL=self.daemon.url, LOCKSTEP_TOKEN=self.daemon.token)
        environment.update(variables)
        environment = {k: str(v) for k, v in environment.items() if v is not None}
        done = subprocess.run([self.python, script, *map(str, arguments)], cwd=self.root, env=environment,
                              capture_output=True, text=True, timeout=120 * harness.PATIENCE, check=False)
        if check:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_what_is_in_the_wheel_and_that_the_sdist_makes_the_same(self):
        names = set(zipfile.ZipFile(self.wheel).namelist())
        self.assertIn("lockstep/py.typed", names)
        self.assertEqual({name.split("/")[0].split("-")[0] for name in names}, {"lockstep"})
        with tarfile.open(self.sdist) as archive:
            archive.extractall(self.root / "unpacked")  # noqa: S202 - it is our own
        again = next((self.root / "unpacked").iterdir())
        self.pip("wheel", "--no-deps", "--wheel-dir", self.root / "again", again)
        self.assertEqual(next((self.root / "again").iterdir()).read_bytes(), self.wheel.read_bytes())

    def test_an_editable_installation_follows_its_folder(self):
        source = self.root / "edited"
        shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__"))
        self.addCleanup(self.pip, "install", "--force-reinstall", self.wheel)
        self.pip("install", "--force-reinstall", "-e", source)
        with open(source / "lockstep" / "__init__.py", "a") as file:
            file.write("\nedited = 17\n")
        said = self.run_script("import lockstep; print(lockstep.edited, lockstep.__file__)").stdout.split()
        self.assertEqual(said, ["17", str(source / "lockstep" / "__init__.py")])

    def test_its_version_is_lockstep_s(self):
        said = subprocess.run([harness.BIN / "lockstepd", "--version"], capture_output=True, text=True, check=True).stdout
        installed = self.run_script("import lockstep; print(lockstep.__version__)").stdout.strip()
        self.assertIn(installed, said)
        self.assertIn(f'version = "{installed}"', (HERE / "pyproject.toml").read_text())

    def test_a_script_runs_under_a_plain_python(self):
        done = self.run_script("""
            import os
            os.environ.pop("LOCKSTEP_URL")
            import lockstep
            assert lockstep.report(1, loss=0.5) is False and lockstep.auto() is False
            assert not lockstep.checkpoint_requested()
            place = lockstep.context()
            assert (place.rank, place.world_size, place.is_lockstep, place.restarted) == (0, 1, False, False), place
            try:
                lockstep.barrier()
            except lockstep.LockstepError as error:
                print(error.code)
            """)
        self.assertEqual(done.stdout, "unavailable\n")

    def test_submit_wait_logs_series_cancel(self):
        done = self.run_script("""
            import json, sys, lockstep
            daemon = lockstep.Daemon()
            assert daemon.whoami()["user"]
            rank = '''
            import lockstep
            place = lockstep.context()
            assert place.is_lockstep and place.world_size == 2 and place.local_rank == place.rank, place
            assert place.checkpoint_directory and len(place.hosts) == 1
            lockstep.set(f"seen/{place.rank}", "yes")
            lockstep.barrier()
            for step in range(1, 11):
                lockstep.report(step, loss=1 / step if step < 10 else float("nan"))
            print("rank", place.rank, lockstep.get(f"seen/{1 - place.rank}").decode())
            '''.replace("\\n            ", "\\n")
            job = lockstep.submit({"name": "api", "framework": "command", "command": [sys.executable, "-c", rank],
                                   "resources": {"ranks_per_node": 2}})
            assert job.wait(SECONDS)["state"] == "succeeded" and job.done()
            series = job.series("loss")
            assert sorted(series) == [0, 1] and len(series[1]) == 10, series
            assert series[1].x == list(range(1, 11)) and series[1].values[3] == 0.25 and series[1].values[9] != series[1].values[9]
            assert job.logs(rank=1) == "rank 1 yes\\n", job.logs(rank=1)
            assert [e["kind"] for e in job.events()][0] == "submitted"
            assert [one["state"] for one in job.ranks()] == ["succeeded"] * 2
            assert [one["id"] for one in daemon.jobs(name="api")] == [job.id]

            same = [daemon.submit({"name": "k", "framework": "command", "command": ["true"]}, key="key-1").id for _ in range(2)]
            assert same[0] == same[1], same
            waits = lockstep.submit({"name": "waits", "framework": "command", "command": ["sleep", "600"]})
            try:
                waits.wait(0.2)
            except TimeoutError as error:
                assert waits.id in str(error)
            waits.cancel()
            assert waits.wait(SECONDS, check=False)["state"] == "cancelled"
            try:
                waits.wait()
            except lockstep.JobFailed as error:
                assert error.job["state"] == "cancelled"
            try:
                lockstep.submit({"name": "bad", "framework": "command", "command": ["true"], "resources": {"nodes": 0}})
            except lockstep.DaemonError as error:
                assert error.status == 400 and error.errors[0]["pointer"] == "/resources/nodes", error.errors
            else:
                raise SystemExit("0 nodes were accepted")
            try:
                lockstep.submit({"name": "bad"})
            except lockstep.DaemonError as error:
                assert str(error) == "POST /v1/jobs: 400 /framework: is required", error
            for what in (5, None, "train.py", [1]):
                for submit in (lockstep.submit, lockstep.Daemon().submit):
                    try:
                        submit(what)
                    except TypeError as error:
                        assert "a specification" in str(error) and type(what).__name__ in str(error), error
                    else:
                        raise SystemExit("it was taken")
            print("good")
            """)
        self.assertEqual(done.stdout, "good\n", done.stderr)

    def test_awaited(self):
        done = self.run_script("""
            import asyncio, lockstep
            async def main():
                daemon = lockstep.AsyncDaemon()
                jobs = [await daemon.submit({"name": f"a{n}", "framework": "command", "command": ["echo", str(n)]}) for n in range(3)]
                ended = await asyncio.gather(*(daemon.wait(job.id, SECONDS) for job in jobs))
                assert [one["state"] for one in ended] == ["succeeded"] * 3
                assert [await daemon.logs(job.id) for job in jobs] == ["0\\n", "1\\n", "2\\n"]
                assert len([job async for job in daemon.jobs()]) == 3
            asyncio.run(main())
            print("good")
            """)
        self.assertEqual(done.stdout, "good\n", done.stderr)

    def test_what_is_awaited_is_what_there_is(self):
        done = self.run_script("""
            import inspect, lockstep
            def names(kind):
                return {name: inspect.signature(what) for name, what in inspect.getmembers(kind, callable)
                        if not name.startswith("_")}
            plain, awaited = names(lockstep.Daemon), names(lockstep.AsyncDaemon)
            assert len(plain) > 12, plain
            assert sorted(plain) == sorted(awaited), set(plain) ^ set(awaited)
            for name, signature in plain.items():
                assert list(signature.parameters) == list(awaited[name].parameters), name
            """)
        self.assertEqual(done.stdout, "")

    def test_waiting_outlasts_a_restart_of_lockstepd(self):
        self.wait_through_a_restart(Way(self.daemon))

    def test_waiting_outlasts_a_restart_of_lockstepd_behind_a_proxy_that_says_502(self):
        # As the nginx of deploy/ does at once: both ended with DaemonError.
        self.wait_through_a_restart(Way(self.daemon, b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"))

    def wait_through_a_restart(self, way):
        self.addCleanup(way.close)
        go = self.root / "go"
        job = self.daemon.submit(harness.command_job("long", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"))["id"]
        self.daemon.wait_state(job, "running")
        script = self.root / "waits.py"
        script.write_text(textwrap.dedent("""
            import asyncio, sys, threading, lockstep
            states = []
            wait = lambda: states.append(lockstep.Daemon().wait(sys.argv[1])["state"])
            thread = threading.Thread(target=wait)
            thread.start()
            states.append(asyncio.run(lockstep.AsyncDaemon().wait(sys.argv[1]))["state"])
            thread.join()
            print(states)
            """))
        environment = {"PATH": os.environ["PATH"], "LOCKSTEP_URL": way.url, "LOCKSTEP_TOKEN": self.daemon.token}
        waiting = subprocess.Popen([self.python, script, job], env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(waiting.stdout.close)
        self.addCleanup(waiting.stderr.close)
        self.addCleanup(waiting.kill)
        harness.wait_until(lambda: way.passed >= 4, 60, "both have looked")
        self.daemon.kill9()
        refused = way.refused
        harness.wait_until(lambda: way.refused >= refused + 4 or waiting.poll() is not None, 60, "both have looked in vain")
        self.daemon.start()
        go.touch()
        said, problem = waiting.communicate(timeout=60 * harness.PATIENCE)
        self.assertEqual(said, "['succeeded', 'succeeded']\n", problem)

    def test_a_function(self):
        (self.root / "work.py").write_text(textwrap.dedent("""
            import os
            import lockstep
            class Broken(ValueError):
                pass
            def train(rate, epochs=1):
                place = lockstep.context()
                lockstep.report(1, loss=rate)
                if rate < 0:
                    raise Broken(f"a rate of {rate}")
                return {"rank": place.rank, "rate": rate * epochs, "seed": os.environ["SEED"], "where": os.getcwd()}
            """))
        done = self.run_script("""
            import os, lockstep, work
            job = lockstep.submit(work.train, 0.5, kwargs={"epochs": 4}, ranks_per_node=2, environment={"SEED": "7"},
                                  labels={"of": "test"})
            found = job.results(SECONDS)
            assert found == [{"rank": rank, "rate": 2.0, "seed": "7", "where": os.getcwd()} for rank in range(2)], found
            assert job.result() == found[0] and job.exception() is None
            assert job.get()["labels"] == {"of": "test"}
            bad = lockstep.submit(work.train, -1, environment={"SEED": "7"})
            try:
                bad.result(SECONDS)
            except lockstep.FunctionFailed as error:
                assert isinstance(error.__cause__, work.Broken) and "a rate of -1" in str(error.__cause__), error.__cause__
                assert error.cause["rank"] == 0 and "a rate of -1" in error.cause["message"], error.cause
                assert "in train" in error.traceback
            assert isinstance(bad.exception(), lockstep.JobFailed)
            def mine():
                pass
            try:
                lockstep.submit(mine)
            except TypeError as error:
                print(error)
            """)
        self.assertIn("needs cloudpickle", done.stdout)

    def test_what_it_calls_is_in_the_openapi_document(self):
        paths = self.daemon.get("/openapi.json")["paths"]
        known = {re.sub(r"\{[^}]*\}", "{}", path) for path in paths}
        text = (HERE / "lockstep" / "daemon.py").read_text()
        used = {re.sub(r"\{[^}]*\}", "{}", path).split("?")[0] for path in re.findall(r'f?"(/v1/[^"]*)"', text)}
        self.assertGreater(len(used), 8, used)
        self.assertLessEqual(used, known, json.dumps(sorted(used - known)))

    def test_a_daemon_that_is_not_there(self):
        done = self.run_script("""
            import lockstep
            try:
                lockstep.Daemon("http://127.0.0.1:9").get("ls-x")
            except lockstep.DaemonError as error:
                print(error.status, "refused" in str(error))
            """)
        self.assertEqual(done.stdout, "0 True\n")


class Way:
    """An address that stays while lockstepd's changes: what comes goes on to it; while it is away it is closed, or
    answered with `away`."""

    def __init__(self, daemon, away=b""):
        self.passed = self.refused = 0
        way = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                host, _, port = daemon.url.rpartition("/")[2].partition(":")
                try:
                    there = socket.create_connection((host, int(port)), timeout=60)
                except OSError:
                    if away:
                        self.request.recv(65536)  # what is not read would make a reset of the end
                        self.request.sendall(away)
                    way.refused += 1
                    return
                way.passed += 1
                other = {self.request: there, there: self.request}
                with there, contextlib.suppress(OSError):
                    while True:
                        for one in select.select([self.request, there], [], [])[0]:
                            data = one.recv(65536)
                            if not data:
                                return
                            other[one].sendall(data)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class OverTls(harness.TestCase):
    DAEMON_ARGUMENTS = ("--tls", "always")

    def setUp(self):
        original, harness.Daemon = harness.Daemon, harness.TlsDaemon
        self.addCleanup(setattr, harness, "Daemon", original)
        super().setUp()

    def test_the_certificate_is_compared_before_anything_is_sent(self):
        code = ("import sys, lockstep\n"
                "url, token, fingerprint = sys.argv[1:]\n"
                "try:\n"
                "    print(lockstep.Daemon(url, token, fingerprint).whoami()['user'])\n"
                "except lockstep.DaemonError as error:\n"
                "    print('refused', error.status, 'fingerprint' in str(error))\n")

        def ask(fingerprint):
            environment = {"PYTHONPATH": str(HERE), "HOME": str(self.root)}
            return subprocess.run([sys.executable, "-c", code, self.daemon.url, self.daemon.token, fingerprint],
                                  env=environment, capture_output=True, text=True, timeout=30 * harness.PATIENCE,
                                  check=True).stdout

        self.assertNotIn("refused", ask(self.daemon.fingerprint))
        self.assertEqual(ask("sha256:" + "0" * 64), "refused 0 True\n")
        self.assertEqual(ask("").split()[:2], ["refused", "0"])  # no authority has signed it


if __name__ == "__main__":
    harness.main()
