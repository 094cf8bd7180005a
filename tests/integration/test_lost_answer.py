"""A restart or checkpoint that lockstepd has done while its answer was lost is asked for again, by the command line and by
Python themselves, and is done once: also when lockstepd is killed in between, and when the job is over. Real processes
behind a proxy that takes the answer away."""

import os
import subprocess
import sys

import harness
from cutting import Cutting

# Counts the signals that it has caught; ends once the file is there.
TRAINS = """
import os, pathlib, signal, sys, time
end, caught = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def note(*_):
    with open(caught, "a") as file:
        file.write("caught\\n")
signal.signal(signal.SIGUSR2, note)
print("ready", flush=True)
while not end.exists():
    time.sleep(0.02)
"""


class LostAnswer(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.end, self.caught = self.root / "end", self.root / "caught"
        script = self.root / "train.py"
        script.write_text(TRAINS, encoding="utf-8")
        self.job = self.daemon.submit(harness.command_job(
            "lost", sys.executable, script, self.end, self.caught, checkpoint={"signal": "USR2"}))["id"]
        self.ready(1)

    def ready(self, generation):
        """Its rank runs and catches the signal."""
        self.daemon.wait_generation(self.job, generation, 60)
        harness.wait_until(lambda: self.daemon.rank_log(self.job).count("ready") == generation, 60, "the rank is ready")

    def generations(self):
        return len(self.daemon.job(self.job)["attempts"][-1]["generations"])

    def keys(self, kind):
        return [e["data"].get("key") for e in self.daemon.events(self.job) if e["kind"] == kind]

    def command(self, verb, key):
        """(status, header, answer)."""
        headers = {"Idempotency-Key": key} if key else {}
        status, _, data = answer = self.daemon.request("POST", f"/v1/jobs/{self.job}/{verb}", headers=headers)
        return status, answer[1].get("Idempotency-Replayed"), harness.json.loads(data)

    def finish(self):
        self.end.touch()
        done = self.daemon.wait_state(self.job, harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)

    def test_a_restart_whose_answer_is_lost_is_one_generation_more(self):
        with Cutting(self.daemon, then=lambda: self.ready(2)) as proxy:
            done = proxy.cli("restart", self.job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout,
                         f"{self.job}  its ranks are being started again\n")
        self.assertEqual(len(proxy.answers), 2)
        self.assertEqual(len({key for _, key, _ in proxy.answers}), 1)
        self.assertEqual(self.generations(), 2)
        self.finish()
        self.assertEqual(self.generations(), 2)
        self.assertEqual(len(self.keys("restart_requested")), 1)

    def test_a_checkpoint_whose_answer_a_proxy_takes_is_one_signal(self):
        with Cutting(self.daemon, cut=2, status=504) as proxy:
            done = proxy.cli("checkpoint", self.job, "--idempotency-key", "mine")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("had been done already", done.stdout)
        self.assertEqual([key for _, key, _ in proxy.answers], ["mine"] * 3)
        self.assertEqual(self.keys("checkpoint_requested"), ["mine"])
        harness.wait_until(self.caught.exists, 30, "the rank has caught it")
        status, _, problem = self.command("restart", "mine")
        self.assertEqual(status, 422, problem)
        self.finish()
        self.assertEqual(self.caught.read_text(encoding="utf-8"), "caught\n")
        self.assertEqual(self.generations(), 1)

    def test_a_daemon_killed_between_a_restart_and_its_repetition_does_it_once(self):
        def killed():
            self.daemon.restart()
            self.ready(2)

        with Cutting(self.daemon, then=killed) as proxy:
            done = proxy.cli("restart", self.job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("its ranks are being started again", done.stdout)
        key = proxy.answers[0][1]
        self.assertEqual(self.keys("restart_requested"), [key])
        self.finish()
        self.assertEqual(self.generations(), 2)
        # The job is over, and so is the daemon that had it.
        self.assertEqual(self.command("restart", key)[:2], (200, "true"))
        self.daemon.restart()
        status, replayed, answer = self.command("restart", key)
        self.assertEqual((status, replayed, answer["already_done"]), (200, "true", True))
        self.assertEqual(answer["state"], "succeeded")
        self.assertEqual(self.command("restart", "another")[0], 409)
        self.assertEqual(self.command("restart", None)[0], 409)

    def test_without_an_answer_the_command_line_prints_the_key_to_go_on_with(self):
        with Cutting(self.daemon, cut=4, then=lambda: self.ready(2)) as proxy:
            lost = proxy.cli("restart", self.job)
            self.assertEqual(lost.returncode, 4, lost.stdout)
            again = lost.stderr.splitlines()[-1].split()
            self.assertEqual(again[:4], ["lockstep", "restart", self.job, "--idempotency-key"])
            done = proxy.cli(*again[1:])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("had been done already", done.stdout)
        self.finish()
        self.assertEqual(self.generations(), 2)

    def test_the_command_that_is_printed_is_the_one_that_was_typed(self):
        # It had neither --url nor --token-file: another lockstepd was asked, or none.
        token, spec = self.root / "my token", self.root / "it's one.json"
        token.write_text(self.daemon.token, encoding="utf-8")
        spec.write_text(harness.json.dumps(harness.command_job("again", "true")), encoding="utf-8")
        bare = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        bare["PATH"] = f"{harness.BIN}:{bare['PATH']}"

        def ran(*command):
            return subprocess.run(command, stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False, env=bare,
                                  timeout=60 * harness.PATIENCE)

        for words, verb in (("submit", spec), "submit"), (("checkpoint", self.job), "checkpoint"):
            with self.subTest(verb), Cutting(self.daemon, cut=4) as proxy:
                lost = ran("lockstep", *words, "--url", proxy.url, f"--token-file={token}")
                self.assertEqual(lost.returncode, 4, lost.stderr)
                done = ran("/bin/sh", "-c", lost.stderr.splitlines()[-1])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(len({key for _, key, _ in proxy.answers}), 1)
        again = [job for job in self.daemon.get("/v1/jobs")["items"] if job["name"] == "again"]
        self.assertEqual(len(again), 1, again)
        self.assertEqual(len(self.keys("checkpoint_requested")), 1)
        self.finish()

    def ask_by_python(self, proxy, command):
        """It succeeds at the second time, under the same key."""
        done = subprocess.run([sys.executable, "-c", f"import lockstep; lockstep.Daemon().{command}"],
                              env={**proxy.environment(), "PYTHONPATH": str(harness.PYTHON_PACKAGE)}, text=True,
                              capture_output=True, timeout=60 * harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(proxy.answers), 2)
        self.assertEqual(len({key for _, key, _ in proxy.answers}), 1)

    def test_python_asks_again_by_itself(self):
        with Cutting(self.daemon, then=lambda: self.ready(2)) as proxy:
            self.ask_by_python(proxy, f"restart({self.job!r})")
        self.finish()
        self.assertEqual(self.generations(), 2)

    def test_python_submits_again_when_a_proxy_says_502(self):
        # It raised, with the job running and nobody who knew its id.
        spec = harness.command_job("again", "true")
        for status in 502, 504:
            with self.subTest(status), Cutting(self.daemon, status=status) as proxy:
                self.ask_by_python(proxy, f"submit({spec!r})")
        again = [job for job in self.daemon.get("/v1/jobs")["items"] if job["name"] == "again"]
        self.assertEqual(len(again), 2, again)  # one for each
        self.finish()


if __name__ == "__main__":
    harness.main()
