"""Horovod over Gloo: its rendezvous is the agent's."""

import frameworks


class Horovod(frameworks.Framework):
    ENVIRONMENT = "horovod"

    @frameworks.in_every_run
    @frameworks.on_slurm
    def test_four_ranks_on_two_nodes(self):
        job = self.trains("horovod", "horovod_loop.py", nodes=2)
        self.assert_logs(job, *(f"rank {rank} of 4, local {rank % 2} of 2" for rank in range(4)), ranks=4)
        self.assert_losses(job, range(4), 20)
        self.saw("horovod", "Gloo, the agent's rendezvous; Debian's torch 1.13", "2 × 2 ranks; 20 losses of each")

    def test_nothing_but_lockstep_run(self):
        self.assert_run("horovod_loop.py", [0, 1])
        self.saw("horovod", "lockstep run -n 2 -- python", "the framework is guessed; the loss of each")

    @frameworks.on_slurm
    def test_the_exception_of_a_rank(self):
        self.assert_culprit("horovod", "horovod_loop.py", "--bad-data", 1, text="is out of bounds")
        self.saw("horovod", "exception of a rank", "named")

    @frameworks.on_slurm
    def test_a_killed_rank(self):
        state = self.root / "state.pt"
        job = self.assert_goes_on("horovod", "horovod_loop.py", "--steps", 2000, "--checkpoint", state,
                                  checkpoint=state.exists)
        self.assertIn("resumes after step", self.daemon.rank_log(job, 1))
        self.saw("horovod", "kill of a rank", "generation 2 resumes from the script's file")


if __name__ == "__main__":
    frameworks.main()
