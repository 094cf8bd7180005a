"""The first rank that fails is the cause; the others are its echo."""

import harness


class FailureCause(harness.TestCase):
    def failed(self, spec):
        job = self.daemon.submit(spec)
        done = self.daemon.wait_state(job["id"], harness.FINAL, 60)
        self.assertEqual(done["state"], "failed", done)
        return done

    def test_the_rank_that_exits_first_is_named_with_its_code_and_last_lines(self):
        # The others fail too, because it is gone: as ranks do whose peer died.
        script = ('if [ "$RANK" = 1 ]; then echo "assertion failed: weights are empty"; exit 7; fi; '
                  'trap "echo peer lost; exit 1" TERM; while :; do sleep 0.05; done')
        for nodes, ranks_per_node in ((1, 3), (3, 1)):
            with self.subTest(nodes=nodes):
                job = self.failed(harness.command_job(
                    "first", "/bin/sh", "-c", script,
                    resources={"nodes": nodes, "ranks_per_node": ranks_per_node}))
                cause = job["cause"]
                self.assertEqual(cause["class"], "rank_exit", cause)
                self.assertEqual(cause["rank"], 1)
                self.assertEqual(cause["exit_code"], 7)
                self.assertIn("weights are empty", cause["log_tail"])
                self.assertTrue(cause["node"])
                # Without `recovery` the first failure ends the job.
                self.assertEqual([len(attempt["generations"]) for attempt in job["attempts"]], [1])
                ranks = self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]
                self.assertEqual([r["rank"] for r in ranks if r["state"] == "failed"], [1], ranks)

    def test_a_signal_is_named(self):
        cause = self.failed(harness.command_job("killed", "/bin/sh", "-c", "kill -SEGV $$"))["cause"]
        self.assertEqual(cause["class"], "rank_signal", cause)
        self.assertEqual(cause["signal"], 11)
        self.assertNotIn("exit_code", cause)

    def test_the_command_line_says_why_and_ends_with_one(self):
        spec = self.root / "job.json"
        spec.write_text('{"name": "bad", "framework": "command", "command": ["/bin/sh", "-c", "echo oh no; exit 3"]}')
        done = self.daemon.cli("submit", spec, "--wait", check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("oh no", done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
