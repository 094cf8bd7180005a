"""Where every failure is an echo, the rank that the others waited for is named, and nobody without evidence."""

import unittest

import harness

# Each rank does as its part of WHAT says. Steps are reported and then made together.
SCRIPT = """
import os, sys, time
rank, kind, seconds = int(os.environ["RANK"]), sys.argv[1], 4.0
if kind == "gloo":
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
import lockstep
for step in range(1, 8):
    lockstep.report(step, loss=1.0 / step)
    if rank == 1 and step == 5:
        if kind in ("leaves", "gloo"):
            sys.exit(0)
        if kind == "hangs":
            time.sleep(600)
    if kind == "nobody" and step == 5:
        raise RuntimeError("Connection closed by peer")
    if kind == "gloo":
        dist.all_reduce(torch.ones(1))
    else:
        lockstep.barrier(f"step {step}", timeout=seconds)
"""


class Echoes(harness.TestCase):
    def run_job(self, kind):
        script = self.root / "train.py"
        script.write_text(SCRIPT)
        spec = harness.command_job(kind, harness.PYTHON, script, kind, working_directory=str(self.root),
                                   environment={"PYTHONPATH": str(harness.PYTHON_PACKAGE)},
                                   resources={"nodes": 1, "ranks_per_node": 2})
        done = self.daemon.wait_state(self.daemon.submit(spec)["id"], harness.FINAL, 120)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "rank_exit"), done)
        return done

    def check(self, kind, said, failed):
        done = self.run_job(kind)
        cause = done["cause"]
        self.assertEqual(cause.get("rank"), 1, cause)
        self.assertRegex(cause["message"], said)
        self.assertEqual([(one["rank"], one["failure"]) for one in cause["others"]], [(0, "echo")], cause)
        show = self.daemon.cli("show", done["id"]).stdout
        self.assertIn("rank 1 on ", show)
        self.assertRegex(show, failed)

    def test_a_rank_that_left_before_a_barrier_is_named_and_not_who_waited(self):
        self.check("leaves", r"rank 1 on \S+ left with exit 0 at step 5 and was waited for in vain\. Then rank 0 on \S+ raised "
                   r"\S*TimedOut: timed_out: missing: rank 1", "also failed +rank 0")

    def test_a_rank_that_does_not_come_to_a_barrier_is_named_and_not_who_waited(self):
        self.check("hangs", r"rank 1 on \S+ did not come to where it was waited for\. Then rank 0 on \S+ raised \S*TimedOut",
                   "also failed +rank 0")

    @unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
    def test_a_rank_that_left_before_a_collective_is_named_and_not_who_lost_its_peer(self):
        self.check("gloo", r"rank 1 on \S+ left with exit 0 at step 5 while 1 other went on\. Then rank 0 on \S+ raised ",
                   "also failed +rank 0")

    def test_nobody_is_blamed_where_all_failures_are_echoes_of_none(self):
        cause = self.run_job("nobody")["cause"]
        self.assertNotIn("rank", cause)
        self.assertIn("the first cause is not known", cause["message"])
        self.assertEqual(sorted(one["rank"] for one in cause["others"]), [0, 1])

    def test_a_rank_that_has_left_is_named_while_the_others_make_no_step(self):
        script = self.root / "train.py"
        script.write_text("import lockstep, os, time\n"
                          "for step in range(1, 6):\n    lockstep.report(step, loss=1.0 / step)\n"
                          "while os.environ['RANK'] == '0' and not os.path.exists('go'):\n    time.sleep(0.02)\n")
        job = self.daemon.submit(harness.command_job(
            "left", harness.PYTHON, script, working_directory=str(self.root), watch={"hang_seconds": 3},
            environment={"PYTHONPATH": str(harness.PYTHON_PACKAGE)}, recovery={"on": ["hang"], "max_restarts": 1},
            resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        told = self.daemon.wait_for(job, lambda job: any("left with exit 0" in one for one in job.get("warnings", [])), 60,
                                    "who has left is told")
        self.assertRegex(" ".join(told["warnings"]), r"rank 1 on \S+ left with exit 0 at step 5; no rank has made a step for \d+ s, "
                         "and 1 other may wait for it")
        self.assertEqual(told["state"], "running", "it may be at work on what comes after the last step")
        (self.root / "go").write_text("")
        done = self.daemon.wait_state(job, "succeeded", 60)
        self.assertEqual(sum("left with exit 0" in one for one in done["warnings"]), 1, "once")


if __name__ == "__main__":
    harness.main()
