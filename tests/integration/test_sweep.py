"""Sweeps and jobs that run after others, with real ranks."""

import json
import os

import harness


class Sweep(harness.TestCase):
    def spec_file(self, **more):
        spec = {**harness.command_job("points", "/bin/sh", "-c", "echo value $VALUE"), **more}
        path = self.root / "sweep.json"
        path.write_text(json.dumps(spec))
        return path

    def of_sweep(self, first):
        found = json.loads(self.daemon.cli("jobs", "--sweep", first, "--json").stdout)["items"]
        return sorted(found, key=lambda job: job["sweep"]["index"])

    def test_each_point_is_a_job_of_its_own(self):
        written = ["one", "$HOME/two", "it's $$HOME; three"]
        values = ["one", os.environ["HOME"] + "/two", "it's $HOME; three"]
        done = self.daemon.cli("submit", "--wait", self.spec_file(
            sweep={"parameters": {"environment.VALUE": written}, "max_parallel": 1}))
        first = done.stdout.split()[0]
        self.assertIn("the first of 3 jobs", done.stderr)
        jobs = self.of_sweep(first)
        self.assertEqual([job["state"] for job in jobs], ["succeeded"] * 3)
        self.assertEqual(jobs[0]["id"], first)
        for job, value in zip(jobs, values):
            # What a sweep sets in the environment is in the specification, and there its owner's alone.
            self.assertEqual(job["sweep"]["parameters"], {"environment.VALUE": "***"})
            self.assertEqual(self.daemon.get(f"/v1/jobs/{job['id']}/spec")["environment"]["VALUE"],
                             value.replace("$", "$$"))
            self.assertIn(f"value {value}", self.daemon.cli("logs", job["id"]).stdout)
        # One at a time: none started before the one ahead of it had ended.
        for ahead, behind in zip(jobs, jobs[1:]):
            self.assertLessEqual(ahead["finished_at"], behind["started_at"])

    def test_what_it_sets_in_environment_and_notify_is_shown_to_nobody(self):
        job = self.daemon.submit({**harness.command_job("secrets", "/bin/sh", "-c", 'test "$A" = "t0p"secret1 && test "$B" = "t0p"secret2'),
                                  "environment": {"A": "{tok}"}, "notify": ["mail"],
                                  "sweep": {"parameters": {"tok": ["t0psecret1"], "environment.B": ["t0psecret2"],
                                                           "notify.0": ["webhook:https://hooks.invalid/t0psecret3"],
                                                           "labels.n": ["1"]}}})
        self.daemon.wait_state(job["id"], "succeeded")
        for path in ("", f"/{job['id']}", f"/{job['id']}/events"):
            text = json.dumps(self.daemon.get("/v1/jobs" + path))
            self.assertNotIn("t0psecret", text, path)
        self.assertEqual(self.daemon.job(job["id"])["sweep"]["parameters"],
                         {"tok": "***", "environment.B": "***", "notify.0": "***", "labels.n": "1"})
        self.assertIn("***", self.daemon.cli("jobs", "--sweep", job["id"]).stdout)

    def test_a_variable_that_the_caller_has_not_is_named(self):
        done = self.daemon.cli("submit", self.spec_file(sweep={"parameters": {"environment.VALUE": ["a", "$NOT_HERE"]}}),
                               check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/sweep/parameters/environment.VALUE/1: $NOT_HERE is not set here", done.stderr)

    def test_a_killed_daemon_goes_on_with_the_sweep(self):
        release = self.root / "release"
        spec = harness.command_job("points", "/bin/sh", "-c",
                                   f"echo $VALUE >> {self.root}/starts; until [ -e {release} ]; do sleep 0.05; done")
        job = self.daemon.submit({**spec, "sweep": {"parameters": {"environment.VALUE": ["a", "b", "c"]},
                                                    "max_parallel": 1}})
        self.daemon.wait_state(job["id"], "running")
        self.daemon.restart()
        release.touch()
        for one in self.of_sweep(job["id"]):
            self.daemon.wait_state(one["id"], "succeeded")
        self.assertEqual(sorted((self.root / "starts").read_text().split()), ["a", "b", "c"])

    def test_a_sweep_is_cancelled_as_a_whole(self):
        job = self.daemon.submit({**harness.command_job("points", "sleep", "600"),
                                  "sweep": {"parameters": {"environment.V": ["1", "2", "3"]}, "max_parallel": 1}})
        self.daemon.wait_state(job["id"], "running")
        self.assertIn("3 jobs", self.daemon.cli("cancel", "--sweep", job["id"]).stdout)
        for one in self.of_sweep(job["id"]):
            self.daemon.wait_state(one["id"], "cancelled")

    def test_what_is_wrong_with_a_point_is_said_before_anything_is_accepted(self):
        refused = self.daemon.cli("submit", self.spec_file(
            sweep={"parameters": {"resources.nodes": [1, 0]}}), check=False)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("/resources/nodes", refused.stderr)
        self.assertIn("resources.nodes = 0", refused.stderr)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"], [])

    def test_a_sweep_is_rendered_as_its_first_job(self):
        status, answer = self.daemon.api("POST", "/v1/jobs/render", json.loads(self.spec_file(
            sweep={"parameters": {"environment.VALUE": ["x", "y"]}}).read_text()))
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["sweep"], {"size": 2, "parameters": {"environment.VALUE": "x"}})
        self.assertEqual(answer["environment"]["VALUE"], "x")


class After(harness.TestCase):
    def test_a_chain_runs_in_order_and_breaks_where_it_fails(self):
        log = self.root / "order"
        release = self.root / "release"

        def step(name, script, *after):
            return self.daemon.submit({**harness.command_job(name, "/bin/sh", "-c", script),
                                       "after": list(after)})["id"]
        first = step("first", f"until [ -e {release} ]; do sleep 0.05; done; echo 1 >> {log}")
        second = step("second", f"echo 2 >> {log}", first)
        third = step("third", f"echo 3 >> {log}; exit 3", first, second)
        fourth = step("fourth", f"echo 4 >> {log}", third)
        self.daemon.wait_for(second, lambda job: f"waits for {first}" in job.get("pending_reason", ""), 10,
                             "says what it waits for")
        self.daemon.restart()
        release.touch()
        self.daemon.wait_state(fourth, "failed")
        self.assertEqual(log.read_text().split(), ["1", "2", "3"])
        job = self.daemon.job(fourth)
        self.assertEqual((job["cause"]["class"], job["attempts"]), ("dependency", []))
        self.assertIn(third, job["cause"]["message"])
        self.assertEqual(self.daemon.job(third)["cause"]["class"], "rank_exit")


if __name__ == "__main__":
    harness.main()
