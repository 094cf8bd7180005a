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
        self.assertIn("1 × nonfinite", self.daemon.cli("show", job).stdout)
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


if __name__ == "__main__":
    harness.main()
