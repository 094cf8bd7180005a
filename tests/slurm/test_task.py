"""Launch task on a real Slurm: srun starts each rank and gives it its PMI."""

import unittest

import harness
from harness import FIXTURES, PYTHON
from lockstep_slurm import SlurmTestCase, command_spec, main

PMIX = {"SLURM_MPI_TYPE": "pmix"}


class Task(SlurmTestCase):
    settings = {"nodes": 2}

    def finished(self, spec, seconds=120):
        job = self.daemon.submit(spec)
        return self.daemon.wait_state(job["id"], harness.FINAL, seconds)

    @unittest.skipUnless(harness.has_module("mpi4py"), "python3-mpi4py is not installed")
    def test_mpi_ranks_are_one_world_and_their_losses_are_seen(self):
        done = self.finished({
            "name": "mpi", "framework": "mpi", "command": [PYTHON, str(FIXTURES / "mpi_sum.py")],
            "environment": PMIX,
            "resources": {"nodes": 2, "ranks_per_node": 2, "time_limit": "00:05:00"}})
        self.assertEqual(done["state"], "succeeded", done)
        for rank in range(4):
            node = "n1" if rank < 2 else "n2"
            self.assertIn(f"rank {rank} of 4 on {node}: sum 6; told {rank} of 4",
                          self.daemon.rank_log(done["id"], rank))
        losses = self.daemon.series(done["id"])
        self.assertEqual({rank: len(points) for rank, points in losses.items()},
                         {rank: 10 for rank in range(4)})
        self.wait_slurm(done["id"], "COMPLETED")

    def test_an_mpi_job_without_pmi_is_refused_before_it_is_alone(self):
        done = self.finished({
            "name": "mpi", "framework": "mpi", "command": ["/bin/true"],
            "resources": {"nodes": 2, "ranks_per_node": 2, "time_limit": "00:05:00"}})
        self.assertEqual(done["state"], "failed", done)
        self.assertIn("SLURM_MPI_TYPE", done["cause"]["message"])

    def test_a_rank_that_fails_is_the_cause(self):
        done = self.finished(command_spec(
            '[ "$RANK" != 3 ] || { echo oh no; exit 7; }; exec sleep 600', 2, 2, launch="task"))
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual((done["cause"]["class"], done["cause"]["rank"], done["cause"]["node"],
                          done["cause"]["exit_code"]), ("rank_exit", 3, "n2", 7), done)
        self.assertIn("oh no", done["cause"]["log_tail"])
        self.wait_slurm(done["id"], "FAILED")

    def test_a_signal_and_a_report_reach_the_agent_and_a_cancel_the_ranks(self):
        job = self.daemon.submit(command_spec(
            'trap "echo told; exit 0" TERM; $LOCKSTEP_AGENT report step=1 loss=0.5; '
            'while :; do sleep 0.1; done', 2, 2, launch="task"))
        self.daemon.wait_state(job["id"], "running")
        harness.wait_until(lambda: len(self.daemon.series(job["id"])) == 4, 30, "four losses")
        self.assertEqual(self.daemon.api("POST", f"/v1/jobs/{job['id']}/cancel")[0], 200)
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "cancelled", done)
        for rank in range(4):
            self.assertTrue(self.daemon.rank_log(job["id"], rank).endswith("told\n"))
        self.wait_slurm(job["id"], "CANCELLED", seconds=60)


if __name__ == "__main__":
    main()
