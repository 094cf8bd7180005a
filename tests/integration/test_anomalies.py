"""What is wrong with a run that goes on is told while it runs, and ends nothing."""

import harness

# A step is what the rank reports; rank 1's loss is NaN from step 5 on.
SCRIPT = """
step=0
until [ -e {done} ]; do
  loss=0.5
  [ "$RANK" = 1 ] && [ $step -ge 5 ] && loss=nan
  {agent} report step=$step loss=$loss
  step=$((step + 1))
  sleep 0.1
done
"""


class Anomalies(harness.TestCase):
    def test_the_first_rank_with_a_nan_is_told_once_and_the_job_goes_on(self):
        done = self.root / "done"
        script = SCRIPT.format(done=done, agent=harness.BIN / "lockstep-agent")
        job = self.daemon.submit(harness.command_job("nan", "/bin/sh", "-c", script,
                                                     resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        harness.wait_until(lambda: any(e["kind"] == "anomaly" for e in self.daemon.events(job)), 30, "it is told")
        event = next(e for e in self.daemon.events(job) if e["kind"] == "anomaly")
        self.assertEqual(event["rank"], 1)
        self.assertEqual(event["data"]["anomaly"], "nonfinite")
        self.assertEqual(event["data"]["step"], 5)
        self.assertEqual(event["data"]["message"], "loss is NaN")
        self.assertEqual(self.daemon.job(job)["state"], "running")
        show = self.daemon.cli("show", job).stdout
        self.assertIn("1 × nonfinite", show)
        self.assertRegex(show, r"nonfinite +rank 1 on \S+ +loss is NaN, step 5")
        metrics = self.daemon.text("/metrics")
        self.assertIn(f'lockstep_job_anomalies_total{{job_id="{job}",kind="nonfinite"}} 1', metrics)
        self.assertIn(f'lockstep_job_anomalies_total{{job_id="{job}",kind="straggler"}} 0', metrics)
        self.assertIn(f'lockstep_rendezvous_ranks_missing{{job_id="{job}"}} 0', metrics)
        self.assertIn('lockstep_rendezvous_rounds_total{result="completed"} 1', metrics)
        # It is in the events, so a daemon that starts anew does not tell it again.
        self.daemon.kill9()
        self.daemon.start()
        done.touch()
        ended = self.daemon.wait_state(job, "succeeded", 60)
        self.assertEqual(ended["anomalies"], {"nonfinite": 1})

    def diverging(self, generations, **recovery):
        """Rank 1's loss is NaN from step 5 on in the first `generations` generations; then the job ends."""
        script = ('[ $LOCKSTEP_GENERATION -gt ' + str(generations) + ' ] && exit 0\n' +
                  SCRIPT.format(done=self.root / "never", agent=harness.BIN / "lockstep-agent"))
        return self.daemon.submit(harness.command_job(
            "diverges", "/bin/sh", "-c", script, resources={"nodes": 1, "ranks_per_node": 2},
            recovery={"on": [], **recovery}))["id"]

    def test_on_nonfinite_loss_stop_ends_the_job_and_names_rank_and_step(self):
        job = self.diverging(9, on_nonfinite_loss="stop")
        done = self.daemon.wait_state(job, harness.FINAL, 40)
        self.assertEqual((done["state"], done["cause"]["class"], done["cause"]["rank"]),
                         ("failed", "nonfinite_loss", 1), done)
        self.assertRegex(done["cause"]["message"], r"^rank 1 on \S+: loss is NaN at step 5$")
        self.assertIn("nonfinite_loss", self.daemon.cli("show", job).stdout)

    def test_on_nonfinite_loss_restart_is_another_generation(self):
        job = self.diverging(1, on_nonfinite_loss="restart", max_restarts=1)
        done = self.daemon.wait_state(job, harness.FINAL, 60)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([g.get("cause", {}).get("class") for g in done["attempts"][0]["generations"]],
                         ["nonfinite_loss", None])

    def test_restarts_for_a_nonfinite_loss_are_counted(self):
        job = self.diverging(9, on_nonfinite_loss="restart", max_restarts=1)
        done = self.daemon.wait_state(job, harness.FINAL, 60)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "nonfinite_loss"), done)
        self.assertEqual(len(done["attempts"][0]["generations"]), 2)
        self.assertIn("restarted 1 times already", done["cause"]["message"])


if __name__ == "__main__":
    harness.main()
