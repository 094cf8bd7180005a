"""A job from POST to succeeded: losses of every rank in series, ranks, /metrics and on the command line."""

import json
import re
import time

import harness


class SubmitRun(harness.TestCase):
    def test_a_native_job_on_two_nodes_with_two_ranks_each_learns_and_succeeds(self):
        job = self.daemon.submit(harness.small_native_job("digits", 2, 2, learning_rate=0.003, epochs=8))
        self.assertRegex(job["id"], r"^ls-[0-9A-HJKMNP-TV-Z]{26}$")
        self.daemon.wait_for(job["id"], lambda j: j.get("step", 0) >= 3, what="steps are reported")
        self._check_metrics(job["id"])
        done = self.daemon.wait_state(job["id"], harness.FINAL, 180)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(done["step"], 160)
        self.assertEqual(len(done["attempts"]), 1)
        self.assertEqual(len(done["attempts"][0]["generations"]), 1)
        self.assertEqual(len(done["attempts"][0]["nodes"]), 2)
        for earlier, later in (("submitted_at", "started_at"), ("started_at", "finished_at")):
            self.assertLess(done[earlier], done[later])
        self.assertGreater(done["ettr"], 0)
        self.assertLessEqual(done["ettr"], 1)
        self._check_series(job["id"])
        self._check_ranks(job["id"])
        self._check_command_line(job["id"])

    def _check_series(self, job_id):
        losses = self.daemon.series(job_id)
        self.assertEqual(sorted(losses), [0, 1, 2, 3])
        for rank, points in losses.items():
            self.assertEqual([p[0] for p in points], list(range(1, 161)), f"rank {rank}: a step is missing")
            values = [p[3] for p in points]
            self.assertLess(sum(values[-5:]), 0.7 * sum(values[:5]), f"rank {rank} did not learn")
            self.assertTrue(all(p[1] == p[2] == p[3] for p in points))
        local = {tuple(p[3] for p in points) for points in losses.values()}
        self.assertEqual(len(local), 4, "losses are local: no two ranks have the same")
        coarse = self.daemon.series(job_id, points=4, ranks="1-2")
        self.assertEqual(sorted(coarse), [1, 2])
        for rank, points in coarse.items():
            self.assertLessEqual(len(points), 4)
            self.assertEqual(max(p[2] for p in points), max(p[2] for p in losses[rank]))
            self.assertEqual(min(p[1] for p in points), min(p[1] for p in losses[rank]))
        by_time = self.daemon.series(job_id, x="time", ranks="0")[0]
        self.assertEqual(len(by_time), 160)
        self.assertAlmostEqual(by_time[-1][0], time.time(), delta=600)

    def _check_ranks(self, job_id):
        ranks = self.daemon.get(f"/v1/jobs/{job_id}/ranks")["items"]
        self.assertEqual([r["rank"] for r in ranks], [0, 1, 2, 3])
        self.assertEqual([r["local_rank"] for r in ranks], [0, 1, 0, 1])
        self.assertEqual([r["node_rank"] for r in ranks], [0, 0, 1, 1])
        for rank in ranks:
            self.assertEqual(rank["state"], "succeeded")
            self.assertEqual(rank["exit_code"], 0)
            self.assertEqual(rank["step"], 160)
            self.assertGreater(rank["step_seconds"], 0)
            self.assertGreater(rank["loss"], 0)

    def _check_metrics(self, job_id):
        def all_there():
            text = self.daemon.text("/metrics")
            return text if (text.count(f'lockstep_rank_loss{{job_id="{job_id}"') == 4 and
                            f'lockstep_job_ranks_reporting{{job_id="{job_id}"}} 4\n' in text) else None
        text = harness.wait_until(all_there, 30, "all ranks are in /metrics")
        for rank in range(4):
            found = re.search(rf'^lockstep_rank_loss{{job_id="{job_id}",rank="{rank}"}} (\S+)$', text, re.M)
            self.assertTrue(found, f"no loss of rank {rank} in /metrics")
            self.assertGreater(float(found.group(1)), 0)
        self.assertIn(f'lockstep_job_state{{job_id="{job_id}",state="running"}} 1\n', text)
        self.assertIn("lockstep_jobs_submitted_total 1\n", text)
        self.assertRegex(text, r'lockstep_ingest_samples_total [1-9]')
        status, headers, body = self.daemon.request(
            "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        self.assertEqual(status, 200)
        self.assertTrue(headers["Content-Type"].startswith("application/openmetrics-text"))
        self.assertTrue(body.endswith(b"# EOF\n"))

    def _check_command_line(self, job_id):
        shown = json.loads(self.daemon.cli("show", job_id, "--json").stdout)
        self.assertEqual(shown["state"], "succeeded")
        listed = json.loads(self.daemon.cli("jobs", "--json").stdout)
        self.assertEqual([j["id"] for j in listed["items"]], [job_id])
        self.assertIn("digits", self.daemon.cli("jobs").stdout)
        self.assertIn("loss is", self.daemon.cli("logs", job_id, "--rank", 3).stdout)
        series = json.loads(self.daemon.cli("series", job_id, "loss", "--ranks", "0-1", "--json").stdout)
        self.assertEqual([s["rank"] for s in series["series"]], [0, 1])

    def test_the_smallest_spec_is_complete(self):
        spec = self.root / "job.json"
        spec.write_text(json.dumps({"name": "first", "framework": "native", "train": {
            "train_samples": 640, "test_samples": 64, "epochs": 1}}))
        done = self.daemon.cli("submit", spec, "--wait", seconds=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.daemon.get("/v1/jobs")["items"][0]["state"], "succeeded")

    def test_four_ranks_run_on_fewer_cores_with_a_warning(self):
        job = self.daemon.submit(harness.command_job("wide", "/bin/true", resources={
            "nodes": 2, "ranks_per_node": 2, "cpus_per_rank": 64}))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertIn("core", json.dumps(done.get("warnings", [])))


if __name__ == "__main__":
    harness.main()
