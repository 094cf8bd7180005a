"""kill -9 of lockstepd: nothing accepted is lost, nothing starts twice, no report is missing."""

import json
import os
import pathlib
import random
import resource
import signal
import threading

import harness


class Restart(harness.TestCase):
    def _gated(self, steps, gate, **fields):
        folder = self.root / "gate"
        folder.mkdir()
        job = self.daemon.submit(harness.python_job("gated", "gated_steps.py", folder, steps, gate,
                                                    resources={"nodes": 2, "ranks_per_node": 2}, **fields))
        return folder, job["id"]

    def _check_complete(self, folder, job_id, steps):
        done = self.daemon.wait_state(job_id, harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(len(done["attempts"]), 1)
        self.assertEqual(len(done["attempts"][0]["generations"]), 1)
        starts = [line.split()[0] for line in (folder / "starts").read_text().splitlines()]
        self.assertEqual(sorted(starts), ["0", "1", "2", "3"], "every rank is started exactly once")
        losses = self.daemon.series(job_id)
        self.assertEqual(sorted(losses), [0, 1, 2, 3])
        for rank, points in losses.items():
            self.assertEqual([p[0] for p in points], list(range(1, steps + 1)), f"rank {rank} has a gap")
            self.assertEqual([p[3] for p in points], [1 / s for s in range(1, steps + 1)])

    def test_a_job_goes_on_while_the_daemon_is_dead_and_nothing_of_it_is_missing(self):
        folder, job_id = self._gated(steps=200, gate=60)
        self.daemon.wait_for(job_id, lambda j: j.get("step", 0) >= 59, what="all ranks are at the gate")
        self.daemon.kill9()
        (folder / "go").touch()  # the next 140 steps happen while nobody listens
        logs = [self.daemon.data / "runs" / job_id / "a1" / f"rank-{r:05}.log" for r in range(4)]
        harness.wait_until(lambda: all("done" in log.read_text() for log in logs), 30, "the ranks finish")
        self.daemon.start()
        self._check_complete(folder, job_id, 200)

    def test_an_io_error_of_the_store_stops_the_daemon_and_the_next_one_has_everything(self):
        kept = self.daemon.submit(harness.command_job("kept", "/bin/true"))["id"]
        self.daemon.wait_state(kept, "succeeded")
        # The kernel refuses every byte written to a file from now on (EFBIG).
        hard = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (1, hard))
        try:
            status = self.daemon.api("POST", "/v1/jobs", harness.command_job("lost", "/bin/true"))[0]
            self.assertGreaterEqual(status, 500, "it is not on disk, so it was not accepted")
        except harness.Unreachable:
            pass  # it went before it answered
        self.assertEqual(self.daemon.process.wait(20), 70)
        self.daemon.start()
        names = [job["name"] for job in self.daemon.get("/v1/jobs")["items"]]
        self.assertEqual(names, ["kept"])

    def test_repeated_kills_during_a_run_change_nothing(self):
        folder, job_id = self._gated(steps=300, gate=1)
        (folder / "go").touch()
        for step in (20, 80, 140, 200):
            self.daemon.wait_for(job_id, lambda j, s=step: j.get("step", 0) >= s or j["state"] == "succeeded",
                                 what=f"step {step}")
            self.daemon.restart()
        self._check_complete(folder, job_id, 300)

    def test_killing_the_daemon_while_ranks_meet_still_gives_one_run(self):
        folder, job_id = self._gated(steps=20, gate=1)
        (folder / "go").touch()
        self.daemon.wait_for(job_id, lambda j: j["state"] in ("starting", "running"), what="agents are there")
        self.daemon.restart()
        done = self.daemon.wait_state(job_id, harness.FINAL, 120)
        self.assertEqual(done["state"], "succeeded", done)
        starts = [line.split()[0] for line in (folder / "starts").read_text().splitlines()]
        generations = sum(len(a["generations"]) for a in done["attempts"])
        for rank in "0123":
            self.assertGreaterEqual(starts.count(rank), 1)
            self.assertLessEqual(starts.count(rank), generations, "at most one start per generation")

    def test_a_kill_while_agents_are_being_started_does_not_hinder_the_next_start(self):
        ids = []
        for number in range(10):
            ids.append(self.daemon.submit(harness.command_job(
                f"burst-{number}", "/bin/true", resources={"nodes": 4, "ranks_per_node": 1}))["id"])
            self.daemon.restart()
        for job_id in ids:
            self.assertEqual(self.daemon.wait_state(job_id, harness.FINAL, 60)["state"], "succeeded")

    def test_a_finished_job_reads_the_same_after_a_restart(self):
        job = self.daemon.submit(harness.small_native_job("once", 1, 2, epochs=1, train_samples=640))
        self.daemon.wait_state(job["id"], "succeeded", 120)
        paths = ["", "/events?limit=1000", "/series?metric=loss", "/spec"]
        before = [self.daemon.get(f"/v1/jobs/{job['id']}{path}") for path in paths]
        log = self.daemon.rank_log(job["id"], 1)
        self.daemon.restart()
        for path, old in zip(paths, before):
            self.assertEqual(self.daemon.get(f"/v1/jobs/{job['id']}{path}"), old, path)
        self.assertEqual(self.daemon.rank_log(job["id"], 1), log)

    def test_a_graceful_stop_ends_zero_and_leaves_the_job_running(self):
        folder, job_id = self._gated(steps=50, gate=20)
        self.daemon.wait_for(job_id, lambda j: j.get("step", 0) >= 19, what="all ranks are at the gate")
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        (folder / "go").touch()
        self._check_complete(folder, job_id, 50)


class AgentsWithoutLockstepd(harness.TestCase):
    """Agents that find no lockstepd end after half an hour: here they are ended."""

    def setUp(self):
        super().setUp()
        self.daemon.stop()
        self.begun, self.go = self.root / "begun", self.root / "go"
        agent = self.root / "agent"
        agent.write_text(f"#!/bin/sh\n: > '{self.begun}'\nwhile [ ! -e '{self.go}' ]; do sleep 0.05; done\n"
                         f"exec '{harness.BIN / 'lockstep-agent'}' \"$@\"\n")
        agent.chmod(0o755)
        self.daemon.arguments = (*self.daemon.arguments, "--agent-path", str(agent))
        self.daemon.start()

    def test_a_job_that_no_agent_of_it_was_heard_for_begins_another_attempt(self):
        job = self.daemon.submit(harness.command_job("night", "/bin/true", resources={"nodes": 1}))["id"]
        harness.wait_until(self.begun.exists, 30, "its agent is started")
        self.daemon.kill9()
        self.go.touch()
        claim = self.daemon.data / "runs" / job / "a1" / "node-00000.claim"
        harness.wait_until(claim.exists, 30, "the agent has its node")
        os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)
        harness.wait_until(lambda: not harness.processes_with(f"runs/{job}"), 30, "the agent has ended")
        self.daemon.start()
        done = self.daemon.wait_state(job, harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([attempt.get("cause", {}).get("message") for attempt in done["attempts"]][:1],
                         ["no lockstepd was there for its agents, and they have ended"])
        self.assertEqual(len(done["attempts"]), 2)


class RestartWhileStopping(harness.TestCase):
    """The daemon dies between a cancel and the end of a rank that ignores SIGTERM: it lives until
    its agent sends SIGKILL, 10 s later."""

    def setUp(self):
        super().setUp()
        self.mark = f"rank of {self.root}"
        deaf = f": {self.mark}; trap '' TERM; echo deaf; while :; do sleep 0.05; done"
        self.job = self.daemon.submit(harness.command_job("deaf", "/bin/sh", "-c", deaf))["id"]
        self.daemon.wait_state(self.job, "running")
        harness.wait_until(lambda: "deaf" in self.daemon.rank_log(self.job), 20, "the rank is deaf")
        # Until it is `sleep`, a child of the shell has the shell's command line: ask again.
        harness.wait_until(lambda: len(harness.processes_with(self.mark)) == 1, 20, "it is one process")

    def cancel(self):
        self.assertIn(self.daemon.api("POST", f"/v1/jobs/{self.job}/cancel")[0], (200, 202))

    def check_it_ends_with_its_rank(self):
        seen = []  # states while the rank lived

        def ended():
            job = self.daemon.job(self.job)
            if harness.processes_with(self.mark):  # now, so it lived when the daemon answered
                self.assertNotIn(job["state"], harness.FINAL, "its rank lives")
                seen.append(job["state"])
                return None
            return job if job["state"] in harness.FINAL else None

        done = harness.wait_until(ended, 45, "the job ends")
        self.assertTrue(seen, "the rank was gone before the daemon was back")
        self.assertEqual(done["state"], "cancelled", done)
        self.assertEqual(done["cause"]["class"], "cancelled_by_user")
        self.assertEqual(len(done["attempts"]), 1)
        self.assertEqual(len(done["attempts"][0]["generations"]), 1)
        harness.wait_until(lambda: not harness.processes_with(f"runs/{self.job}"), 20, "its agent is gone")
        self.assertEqual(harness.processes_with(self.mark), [])

    def test_killed_when_the_agent_has_heard_of_the_stop(self):
        self.cancel()
        log = self.daemon.data / "runs" / self.job / "a1" / "agent-00000.log"
        harness.wait_until(lambda: "attempt is over" in log.read_text(), 20, "the agent was told to stop")
        self.daemon.restart()
        self.check_it_ends_with_its_rank()

    def test_killed_when_the_cancel_was_answered(self):
        self.cancel()
        self.daemon.restart()
        self.check_it_ends_with_its_rank()

    def test_killed_twice(self):
        self.cancel()
        self.daemon.restart()
        self.daemon.restart()
        self.check_it_ends_with_its_rank()


class SubmitUnderKills(harness.TestCase):
    JOBS = 40
    KILLS = 6

    def _submit_until_accepted(self, name, folder, accepted):
        """As a careful client: the same key until there is an answer."""
        spec = harness.command_job(name, "/bin/sh", "-c", f'echo ran >> "{folder}/$LOCKSTEP_JOB_NAME"')
        headers = {"Idempotency-Key": f"key-{name}"}

        def ask():
            try:
                status, answer = self.daemon.api("POST", "/v1/jobs", spec, headers)
            except harness.Unreachable:
                return None
            if status in (409, 503):  # still in flight, or stopping
                return None
            self.assertIn(status, (200, 201), answer)
            return answer["id"]

        accepted[name] = harness.wait_until(ask, 120, f"{name} is accepted")

    def test_no_accepted_job_is_lost_and_none_is_there_or_runs_twice(self):
        folder = pathlib.Path(self.root / "ran")
        folder.mkdir()
        names = [f"job-{i:03}" for i in range(self.JOBS)]
        accepted = {}
        work = list(reversed(names))
        stop_at = threading.Lock()

        def client():
            while True:
                with stop_at:
                    if not work:
                        return
                    name = work.pop()
                self._submit_until_accepted(name, folder, accepted)

        clients = [threading.Thread(target=client) for _ in range(4)]
        for thread in clients:
            thread.start()
        rng = random.Random(20261121)
        for _ in range(self.KILLS):
            # The moment is random; what is waited for is progress or the end, not time.
            target = min(self.JOBS, len(accepted) + rng.randint(1, 8))
            harness.wait_until(lambda t=target: len(accepted) >= t, 60, "submissions go on")
            self.daemon.restart()
        for thread in clients:
            thread.join()
        self.assertEqual(sorted(accepted), names)

        listed = {}
        cursor = ""
        while True:
            page = self.daemon.get(f"/v1/jobs?limit=7{cursor}")
            for job in page["items"]:
                self.assertNotIn(job["id"], listed, "on two pages")
                listed[job["id"]] = job["name"]
            if not page.get("next_cursor"):
                break
            cursor = f"&cursor={page['next_cursor']}"
        self.assertEqual(sorted(listed.values()), names, "each job is there exactly once")
        self.assertEqual({job_id: name for name, job_id in accepted.items()}, listed)

        for name, job_id in accepted.items():
            done = self.daemon.wait_state(job_id, harness.FINAL, 120)
            self.assertEqual(done["state"], "succeeded", done)
            self.assertEqual((folder / name).read_text(), "ran\n", f"{name} ran more than once")


if __name__ == "__main__":
    harness.main()
