"""Ray inside a job: head and workers started by `python -m lockstep.ray`, and Ray's own symmetric-run."""

import frameworks


class Ray(frameworks.Framework):
    ENVIRONMENT = "ray"

    def words(self, *arguments):
        return ["-m", "lockstep.ray", frameworks.PROGRAMS / "ray_actors.py", *arguments]

    @frameworks.on_slurm
    def test_head_and_worker(self):
        job = self.trains("command", self.words(), nodes=2, ranks=1)
        self.assertIn("2 nodes, ", self.daemon.rank_log(job, 0))
        self.assert_losses(job, [0], 10)
        self.saw("ray", "python -m lockstep.ray: head and workers, actors", "2 × 1 ranks; the driver's loss")

    def test_nothing_but_lockstep_run(self):
        # It took framework pytorch, whose store has the port that the head needs.
        self.daemon.cli("run", "-N", 2, "--", self.python(), *self.words(), seconds=frameworks.SECONDS)
        job = self.daemon.get("/v1/jobs?limit=1")["items"][0]
        self.assertEqual((job["framework"], job["name"]), ("command", "ray_actors"))
        self.assertIn("2 nodes, ", self.daemon.rank_log(self.ends(job["id"])["id"], 0))
        self.saw("ray", "lockstep run -N 2 -- python -m lockstep.ray", "framework command is guessed; 2 × 1 ranks")

    def test_two_clusters_on_one_machine(self):
        jobs = [self.submit("command", self.words(), nodes=1, ranks=1) for _ in range(2)]
        for job in jobs:
            self.ends(job)
            self.assertIn("1 nodes, ", self.daemon.rank_log(job, 0))
        self.saw("ray", "two jobs on one machine", "a cluster each, no port in common")

    @frameworks.on_slurm
    def test_the_exception_of_an_actor(self):
        cause = self.assert_culprit("command", self.words("--bad-data", 1), nodes=2, ranks=1, rank=0,
                                    text="RayTaskError(ValueError)")
        self.assertIn("image 17 of worker 1 is broken", cause["exception"]["traceback"])
        self.saw("ray", "exception of an actor", "the driver's rank, with the actor's words")

    @frameworks.on_slurm
    def test_a_killed_node(self):
        job = self.assert_goes_on("command", self.words("--steps", 60), nodes=2, ranks=1, after=2)
        self.assert_losses(job, [0])
        self.saw("ray", "kill of a node's rank", "generation 2 is a new cluster; the script begins again")


if __name__ == "__main__":
    frameworks.main()
