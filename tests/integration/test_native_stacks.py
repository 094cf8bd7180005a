"""Ranks of a node that are no Python and hang: the real gdb looks at one after the other, within a budget for all of them,
and whatever it takes, of each rank something is known."""

import shutil
import subprocess
import unittest

import harness

RANKS = 4
GDB = shutil.which("gdb")
PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void wait_for_a_peer(void) {
  for (;;) pause();
}
int main(void) {
  /* Without a step nobody would call it a hang. */
  if (system("\\"$LOCKSTEP_AGENT\\" report step=7 loss=0.5") != 0) return 1;
  wait_for_a_peer();
}
"""


@unittest.skipUnless(GDB, "gdb is not installed")
@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class NativeStacks(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        """A container or yama may forbid what gdb does."""
        with subprocess.Popen(["sleep", "600"]) as other:
            try:
                done = subprocess.run([GDB, "-nx", "-batch", "-p", str(other.pid), "-ex", "bt"], capture_output=True, text=True,
                                      timeout=60 * harness.PATIENCE, check=False)
                said = "" if "#0 " in done.stdout else done.stderr.strip()[-300:] or "it says nothing"
            except subprocess.TimeoutExpired:
                said = "it does not end"
            finally:
                other.kill()
        if said:
            raise unittest.SkipTest(f"gdb cannot attach to a process here: {said}")

    def setUp(self):
        super().setUp()
        source = self.root / "stuck.c"
        source.write_text(PROGRAM)
        self.program = self.root / "stuck"
        subprocess.run(["cc", "-g", "-O0", "-o", self.program, source], check=True)

    def hang(self, **fields):
        return self.daemon.submit(harness.command_job(
            "stuck", self.program, watch={"hang_seconds": 5}, resources={"nodes": 1, "ranks_per_node": RANKS},
            **fields))["id"]

    def file(self, job, rank, name):
        return self.daemon.cli("evidence", job, "--rank", rank, "--what", name).stdout

    def assert_something_of_each(self, job, item):
        """The ranks that have a native stack; each other one says why it has none."""
        self.assertEqual(sorted(rank["rank"] for rank in item["ranks"]), list(range(RANKS)), item)
        with_stack = []
        for rank in item["ranks"]:
            files = [file["name"] for file in rank["files"]]
            self.assertIn("state.txt", files, rank)
            self.assertIn("stuck", self.file(job, rank["rank"], "state"))
            if "native.txt" in files:
                with_stack.append(rank["rank"])
                self.assertIn("wait_for_a_peer", self.file(job, rank["rank"], "stack"))
                self.assertIn("wait_for_a_peer", rank["frame"], rank)
            else:
                self.assertTrue([gap for gap in rank["missing"] if gap["what"] in ("native", "native.txt", "all")], rank)
        return with_stack

    def test_a_hang_s_evidence_has_something_of_each_rank_and_all_of_them_within_the_budget(self):
        job = self.hang()
        self.daemon.wait_for(job, lambda one: "hang" in one, 60, "the hang is told")

        def all_of_them():
            """On a machine that is busy with other things the budget may not do for all; then once more."""
            self.daemon.cli("evidence", job, "--now")
            items = self.daemon.get(f"/v1/jobs/{job}/evidence")["items"]
            return self.assert_something_of_each(job, items[0]) == list(range(RANKS))
        harness.wait_until(all_of_them, 120, "one look has the stack of every rank")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")

    def test_with_a_gdb_that_is_slow_the_hang_that_ends_the_job_has_something_of_each_rank(self):
        # As it is where it reads the symbols of all of torch: four times that is more than a node has for a look.
        slow = self.root / "bin"
        slow.mkdir()
        (slow / "gdb").write_text(f'#!/bin/sh\nsleep 2.5\nexec {GDB} "$@"\n')
        (slow / "gdb").chmod(0o755)
        job = self.hang(environment={"PATH": f"{slow}:/usr/local/bin:/usr/bin:/bin"},
                        recovery={"max_restarts": 0, "on": ["hang"]})
        done = self.daemon.wait_state(job, harness.FINAL, 120)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "hang"), done)
        item, = self.daemon.get(f"/v1/jobs/{job}/evidence")["items"]
        with_stack = self.assert_something_of_each(job, item)
        print(f"  with 2.5 s each: stacks of ranks {with_stack}, of the others "
              f"{[rank['missing'] for rank in item['ranks'] if rank['rank'] not in with_stack]}", flush=True)
        self.assertTrue(with_stack, "no rank at all has a stack")
        self.assertLess(len(with_stack), RANKS, "four times 2.5 s are more than the 9 s of a look")


if __name__ == "__main__":
    harness.main()
