"""Launch node: one process per node, which starts the node's ranks itself."""

import harness

TWO_BY_TWO = {"nodes": 2, "ranks_per_node": 2}


class NodeLaunch(harness.TestCase):
    def run_to_end(self, spec, seconds=240):
        job = self.daemon.submit(spec)
        done = self.daemon.wait_state(job["id"], harness.FINAL, seconds)
        self.assertEqual(done["state"], "succeeded", done)
        return job["id"]

    def test_there_is_one_process_per_node_and_no_rank_in_its_environment(self):
        job = self.run_to_end(harness.command_job(
            "node", "/usr/bin/env", launch="node", resources={"nodes": 2, "ranks_per_node": 3}))
        ranks = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
        self.assertEqual([(r["rank"], r["node_rank"], r["local_rank"]) for r in ranks],
                         [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2)])
        told = dict(line.split("=", 1) for line in self.daemon.rank_log(job, 3).splitlines() if "=" in line)
        self.assertEqual((told["PET_NNODES"], told["PET_NODE_RANK"], told["PET_NPROC_PER_NODE"]),
                         ("2", "1", "3"))
        self.assertEqual(told["PET_MASTER_PORT"], told["MASTER_PORT"])
        self.assertEqual((told["PADDLE_NNODES"], told["PADDLE_RANK"]), ("2", "1"))
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PADDLE_TRAINER_ID",
                     "LOCKSTEP_RANK", "LOCKSTEP_LOCAL_RANK"):
            self.assertNotIn(name, told)

    def test_a_failure_of_the_launcher_is_the_cause(self):
        job = self.daemon.submit(harness.command_job(
            "bad", "/bin/sh", "-c", '[ "$NODE_RANK" = 0 ] || exit 5; exec sleep 600', launch="node",
            resources=TWO_BY_TWO))
        done = self.daemon.wait_state(job["id"], "failed")
        self.assertEqual(done["cause"]["exit_code"], 5, done)
        self.assertNotIn("rank", done["cause"], "no rank has failed")
        self.assertEqual(done["cause"]["node"], self.daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"][2]["node"])

    def test_task_needs_slurm_and_says_so(self):
        answer = self.daemon.api("POST", "/v1/jobs", {"name": "a", "framework": "mpi", "command": ["x"]})
        self.assert_problem(answer, 400, "/launch", "Slurm")


if __name__ == "__main__":
    harness.main()
