"""Jobs that end before any agent has called in: what is Slurm's doing is handed in again, what a person
has to mend is told at once."""

import contextlib

from harness import BIN, wait_until
from lockstep_slurm import SlurmTestCase, command_spec, main

# The agent's path: counts its calls, and is the agent itself from a given one on.
AGENT = """#!/bin/sh
echo >> {calls}
[ "$(wc -l < {calls})" -ge {first} ] || exit {status}
exec {agent} "$@"
"""


class Unclaimed(SlurmTestCase):
    settings = {"nodes": 2}

    def with_agent(self, first, status):
        self.calls = self.daemon.root / "calls"
        path = self.daemon.root / "agent"
        path.write_text(AGENT.format(calls=self.calls, first=first, status=status,
                                     agent=BIN / "lockstep-agent"))
        path.chmod(0o755)
        self.use(path)

    def use(self, path):
        self.daemon.arguments = (*self.daemon.arguments, "--agent-path", str(path))
        self.daemon.restart()

    def called(self):
        return len(self.calls.read_text().splitlines())

    def fails(self, *words, submissions):
        job = self.daemon.submit(command_spec("true"))["id"]
        cause = self.daemon.wait_state(job, "failed", 60)["cause"]
        self.assertEqual(cause["class"], "scheduler", cause)
        for word in words:
            self.assertIn(word, cause["message"])
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), submissions)

    def test_a_step_that_could_not_start_is_handed_in_again_and_runs_once(self):
        self.with_agent(first=2, status=1)
        starts = self.daemon.root / "starts"
        job = self.daemon.submit(command_spec(f"echo started >> {starts}"))["id"]
        self.daemon.wait_state(job, "succeeded", 60)
        self.assertEqual(starts.read_text(), "started\n")
        self.assertEqual(self.called(), 2)
        states = self.slurm_states(job)
        self.assertEqual([states.pop(min(states, key=int)), len(states)], ["FAILED", 1])

    def test_a_job_whose_time_passes_without_an_agent_is_handed_in_again(self):
        # As a slurmctld that was killed may hold an allocation whose launch never reached the node: nothing calls in.
        self.calls, starts = self.daemon.root / "calls", self.daemon.root / "starts"
        path = self.daemon.root / "agent"
        path.write_text(f'#!/bin/sh\necho >> {self.calls}\n[ "$(wc -l < {self.calls})" -ge 2 ] || exec sleep 1000\n'
                        f'exec {BIN / "lockstep-agent"} "$@"\n')
        path.chmod(0o755)
        self.use(path)
        job = self.daemon.submit(command_spec(f"echo started >> {starts}", resources={"time_limit": "00:01:00"}))["id"]
        self.daemon.wait_state(job, "succeeded", 240)
        self.assertEqual(starts.read_text(), "started\n")
        states = self.slurm_states(job)
        self.assertEqual([states.pop(min(states, key=int)), len(states)], ["TIMEOUT", 1])
        self.assertEqual(len(self.daemon.job(job)["attempts"]), 1)

    def test_after_the_third_time_the_last_end_is_told(self):
        self.with_agent(first=99, status=1)
        self.fails("(exit code 1) before any agent had called in", "3 before it failed as well",
                   "batch.log", submissions=4)
        self.assertEqual(self.called(), 4)

    def test_another_exit_code_is_told_at_once(self):
        self.with_agent(first=99, status=64)
        self.fails("(exit code 64) before any agent had called in: srun: error: ", "; see ", submissions=1)

    def test_a_node_without_the_agent_is_told_at_once(self):
        self.use("/nonexistent/lockstep-agent")
        self.fails("(exit code 127)", "lockstep: no program /nonexistent/lockstep-agent on n1", "batch.log",
                   submissions=1)
        log = next(self.daemon.data.glob("runs/*/a1/batch.log")).read_text()
        self.assertIn("no program /nonexistent/lockstep-agent on n1", log)

    def test_the_agents_last_words_are_in_the_cause(self):
        # Its program is there, and a library it needs is not: the shell's and the loader's 127.
        path = self.daemon.root / "agent"
        path.write_text("#!/bin/sh\necho 'lockstep-agent: error while loading shared libraries: libnone.so.1: "
                        "cannot open shared object file' >&2\nexit 127\n")
        path.chmod(0o755)
        self.use(path)
        self.fails("(exit code 127)", "error while loading shared libraries: libnone.so.1", "batch.log", submissions=1)

    def test_nodes_that_fail_before_the_ranks_met_are_asked_for_again_without_recovery(self):
        # Claimed, and never released: node 1's agent waits for a file, and node 0's for it.
        gate = self.daemon.root / "gate"
        path = self.daemon.root / "agent"
        path.write_text(f'#!/bin/sh\n[ "$SLURM_NODEID" = 0 ] || until [ -e {gate} ]; do sleep 0.1; done\n'
                        f'exec {BIN / "lockstep-agent"} "$@"\n')
        path.chmod(0o755)
        self.use(path)
        starts = self.daemon.root / "starts"
        job = self.daemon.submit(command_spec(f"echo started >> {starts}", nodes=2))["id"]
        wait_until(lambda: "agent_claimed" in self.daemon.kinds(job), 30, "node 0 has called in")
        number = self.slurm_id(job)
        self.cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")

        def usable():
            # slurmctld refuses "resume" of a node that its own agent has brought back already.
            with contextlib.suppress(RuntimeError):
                self.cluster.run("scontrol", "update", "nodename=n1", "state=resume")
            return "DOWN" not in self.cluster.run("scontrol", "show", "node", "n1").stdout

        wait_until(usable, 30, "n1 is back")
        self.cluster.wait_job(number, "NODE_FAIL")  # and node 1's shell has ended with it
        gate.touch()
        job = self.daemon.wait_state(job, "succeeded", 120)
        self.assertEqual(starts.read_text(), "started\n" * 2)
        self.assertEqual([a["cause"]["class"] for a in job["attempts"] if "cause" in a][:1], ["node_lost"])
        self.assertEqual(len(job["attempts"]), 2)

    def test_a_person_who_cancels_it_is_obeyed(self):
        self.with_agent(first=1, status=0)
        blocker = self.cluster.sbatch("#!/bin/sh\nsleep 600\n", "-N2", "--exclusive")
        self.cluster.wait_job(blocker, "RUNNING")
        job = self.daemon.submit(command_spec("true"))["id"]
        self.cluster.run("scancel", self.slurm_id(job))
        self.daemon.wait_state(job, "cancelled", 60)
        self.assertEqual(self.daemon.kinds(job).count("attempt_submitting"), 1)


if __name__ == "__main__":
    main()
