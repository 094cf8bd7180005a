"""The Python package as it lies in the sources: which lockstepd a program finds and who gets the token, what it has of large
jobs, and what ranks have of it."""

import os
import re
import socketserver
import subprocess
import sys
import textwrap
import threading
import unittest

import harness

HERE = harness.PYTHON_PACKAGE


class Found(harness.TestCase):
    ASK = """
        import lockstep
        try:
            print(lockstep.Daemon().whoami()["user"])
        except lockstep.DaemonError as error:
            print(error.status, error)
        """

    def ask(self, code=ASK, **environment):
        plain = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), "HOME": str(self.root / "home"),
                 "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**plain, **environment}, text=True,
                              capture_output=True, timeout=60 * harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def listener(self, user=None):
        """Somebody else, who keeps what is sent and answers nothing; `user`: whose socket the kernel says it is."""
        heard = []

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                heard.append(self.request.recv(65536))

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        if user is not None:
            os.fchown(server.fileno(), user, -1)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}", heard

    def test_by_the_data_directory_that_the_command_line_takes(self):
        user = self.daemon.get("/v1/whoami")["user"]
        data = str(self.daemon.data)
        self.assertEqual(self.ask(LOCKSTEP_DATA_DIR=data), user)
        # As deploy/quickstart says: the token is found beside an address of this machine.
        self.assertEqual(self.ask(LOCKSTEP_DATA_DIR=data, LOCKSTEP_URL=self.daemon.url), user)
        self.assertEqual(self.ask(LOCKSTEP_DATA_DIR=data, LOCKSTEP_URL=self.daemon.url.removeprefix("http://")), user)
        self.assertTrue(self.ask(LOCKSTEP_URL=self.daemon.url).startswith("401 "))

    def test_the_token_goes_to_nobody_who_has_the_address_of_a_lockstepd_that_is_gone(self):
        stranger, heard = self.listener()
        (self.daemon.data / "url").write_text(stranger + "\n")
        user = self.daemon.get("/v1/whoami")["user"]
        self.assertEqual(self.ask(LOCKSTEP_DATA_DIR=str(self.daemon.data)), user, "by its Unix socket")
        self.assertEqual(heard, [])
        self.daemon.kill9()
        self.assertIn("0 no lockstepd runs with the data directory", self.ask(LOCKSTEP_DATA_DIR=str(self.daemon.data)))
        self.assertEqual(heard, [])

    def test_nor_does_another_token_go_there(self):
        stranger, heard = self.listener()
        (self.daemon.data / "url").write_text(stranger + "\n")
        self.daemon.kill9()
        self.assertIn("0 no lockstepd runs with the data directory",
                      self.ask(LOCKSTEP_DATA_DIR=str(self.daemon.data), LOCKSTEP_TOKEN="lks_mine"))
        self.assertEqual(heard, [])

    @unittest.skipIf(os.getuid() != 0, "root alone gives a socket to another user")
    def test_no_token_goes_to_another_users_socket_unless_login_found_it_there(self):
        stranger, heard = self.listener(user=65533)
        for url in (stranger, stranger.replace("127.0.0.1", "localhost")):
            said = self.ask(LOCKSTEP_URL=url, LOCKSTEP_TOKEN="lks_mine")
            self.assertIn("the token was not sent", said)
            self.assertIn("uid 65533", said)
        self.assertEqual(heard, [])
        config = self.root / "home" / ".config" / "lockstep" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'url = "{stranger}"\nlistener = 65533\n')
        self.ask(LOCKSTEP_TOKEN="lks_mine")
        self.assertIn(b"lks_mine", heard[0])

    def test_nor_to_another_address_of_this_machine(self):
        stranger, heard = self.listener()
        data = str(self.daemon.data)
        self.assertIn(f"is for the lockstepd at {self.daemon.url}", self.ask(LOCKSTEP_DATA_DIR=data, LOCKSTEP_URL=stranger))
        self.daemon.kill9()
        self.assertIn("no lockstepd runs with the data directory", self.ask(LOCKSTEP_DATA_DIR=data, LOCKSTEP_URL=stranger))
        self.assertEqual(heard, [])

    def test_nor_does_it_once_lockstepd_is_gone_that_was_there_before(self):
        reading, writing = os.pipe()
        code = ("import lockstep\n"
                "daemon = lockstep.Daemon()\n"
                "print(daemon.whoami()['user'], flush=True)\n"
                "input()\n"
                "try:\n"
                "    daemon.whoami()\n"
                "except lockstep.DaemonError as error:\n"
                "    print(error)\n")
        with subprocess.Popen([sys.executable, "-c", code], text=True, stdin=reading, stdout=subprocess.PIPE, env={
                "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", "LOCKSTEP_DATA_DIR": str(self.daemon.data)}) as asks:
            self.addCleanup(asks.kill)
            os.close(reading)
            self.assertTrue(asks.stdout.readline().strip())
            self.daemon.kill9()
            os.write(writing, b"\n")
            os.close(writing)
            self.assertIn("no lockstepd runs with the data directory", asks.stdout.read())

    def test_a_proxys_path_stands_before_every_request_s(self):
        url, heard = self.listener()
        self.ask(LOCKSTEP_URL=url + "/cluster/", LOCKSTEP_TOKEN="t")
        self.assertTrue(heard[0].startswith(b"GET /cluster/v1/whoami HTTP/1.1"), heard)

    @unittest.skipUnless(harness.has_module("torch"), "torch is not installed")
    def test_a_torch_that_is_too_old_to_be_measured_trains_all_the_same(self):
        # With torch 1.13 auto() raised ImportError if torch had been imported before it.
        for first, second in (("torch", "lockstep; lockstep.auto()"), ("lockstep; lockstep.auto()", "torch")):
            code = f"import {first}\nimport {second}\nimport torch, lockstep\nprint(torch.__version__, lockstep.auto())\n"
            job = self.daemon.submit(harness.command_job("old", harness.PYTHON, "-c", code))["id"]
            self.assertEqual(self.daemon.wait_state(job, harness.FINAL)["state"], "succeeded", self.daemon.rank_log(job))
            log = self.daemon.rank_log(job)
            self.assertRegex(log, r"(?m)^\d\S* True$")
            too_old = re.search(r"(?m)^[01]\.", log) is not None
            self.assertEqual(log.count("is not measured, it takes torch 2.0 or newer"), int(too_old), log)

    def test_ray_under_a_framework_that_has_the_head_s_port_says_so(self):
        job = self.daemon.submit({"name": "ray", "framework": "pytorch",
                                  "command": [sys.executable, "-m", "lockstep.ray", "train.py"]})["id"]
        cause = self.daemon.wait_state(job, harness.FINAL)["cause"]
        self.assertIn("framework says: it must be ray or command", cause["message"] + self.daemon.rank_log(job))

    def test_hooks_that_are_off_do_not_take_what_auto_asks_for(self):
        # They were asked to tell of the import of torch, and did nothing: auto() said True and measured nothing.
        code = ("import sys, lockstep\n"
                "from lockstep import _auto\n"
                "_auto.WHEN_IMPORTED['wave'] = lambda module: print('imported', module.__name__, flush=True)\n"
                "assert lockstep.auto()\n"
                "import wave\n"
                "print('_lockstep_hooks' in sys.modules)\n")
        for setting in ("on", "off"):  # by a wrapper: the agent has put them on the path
            job = self.daemon.submit(harness.command_job(
                "off", "env", f"LOCKSTEP_PYTHON_HOOKS={setting}", sys.executable, "-c", code))["id"]
            self.assertEqual(self.daemon.wait_state(job, harness.FINAL)["state"], "succeeded", self.daemon.rank_log(job))
            self.assertEqual(self.daemon.rank_log(job), "imported wave\nTrue\n")

    def test_a_long_log_is_there_to_its_end(self):
        # An answer has a mebibyte of it: that was all, without a word.
        job = self.daemon.submit(harness.command_job("long", "sh", "-c", "seq 400000"))["id"]
        self.assertEqual(self.daemon.wait_state(job, harness.FINAL)["state"], "succeeded")
        said = self.ask(f"""
            import lockstep
            job = lockstep.Daemon().job({job!r})
            lines = job.logs().split()
            print(len(lines), lines[-1], job.logs(tail=2).split())
            """, LOCKSTEP_DATA_DIR=str(self.daemon.data))
        self.assertEqual(said, "400000 400000 ['399999', '400000']")

    def test_a_job_of_many_ranks_has_a_series_of_each(self):
        # The first 256 ranks were all that there was, without a word.
        report = "import lockstep, os\n" \
                 "for rank in range(300):\n" \
                 "    child = os.fork()\n" \
                 "    if child == 0:\n" \
                 "        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='300')\n" \
                 "        assert lockstep.report(1, loss=rank)\n" \
                 "        lockstep.add('reported')\n" \
                 "        os._exit(0)\n" \
                 "    assert os.waitpid(child, 0)[1] == 0\n" \
                 "assert lockstep.add('reported') == 301\n"
        job = self.daemon.submit({"name": "many", "framework": "command", "launch": "node",
                                  "command": [sys.executable, "-c", report], "resources": {"ranks_per_node": 300}})["id"]
        self.assertEqual(self.daemon.wait_state(job, harness.FINAL)["state"], "succeeded", self.daemon.rank_log(job))
        said = self.ask(f"""
            import lockstep
            from lockstep import daemon as module
            job = lockstep.Daemon().job({job!r})
            series = job.series()
            print(sorted(series) == list(range(300)), series[299].values)
            print(sorted(job.series(ranks="0-2,290-299")), sorted(job.series(ranks=[7])))
            try:
                job.series(ranks="0-9999")
            except lockstep.DaemonError as error:
                print(error.status)
            whole = job.events()
            module._EVENTS = 2
            print(job.events() == whole, len(whole) > 2, job.events(after=whole[0]["seq"]) == whole[1:])
            """, LOCKSTEP_DATA_DIR=str(self.daemon.data))
        self.assertEqual(said.splitlines(), [
            "True [299.0]", f"{[0, 1, 2, *range(290, 300)]} [7]", "400", "True True True"])


if __name__ == "__main__":
    harness.main()
