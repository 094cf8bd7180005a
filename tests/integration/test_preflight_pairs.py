"""The pre-flight's test in pairs: four agents on one machine, with a made-up program that is slow or
fails where a test wants it, and with the real lockstep-train."""

import json
import os
import unittest

import harness
import test_preflight

# Says what lockstep-train would: whoever is paired with a slow node is slow, with a broken one fails.
PROGRAM = """#!{python}
import json, os, pathlib, subprocess, sys, time
task = json.load(sys.stdin)
folder = pathlib.Path({folder!r})
bad = dict(line.split() for line in (folder / "bad").read_text().splitlines())
me, partner = (name.rpartition("-")[2] for name in (os.environ["FAKE_NODE"], task["partner"]))
with open(folder / f"partners-{{me}}", "a") as told:
    print(partner or "alone", file=told)
if bad.get(me) == "hang":
    child = subprocess.Popen(["sleep", "1000"])
    with open(folder / "pids", "a") as told:
        print(os.getpid(), child.pid, file=told)
    time.sleep(1000)
end = time.monotonic() + 15
while (folder / "closed").exists() and time.monotonic() < end:
    time.sleep(0.02)
fate = bad.get(me) or bad.get(partner)
if fate not in (None, "slow"):
    sys.exit("the other node was not reached")
print(json.dumps({{"ms": 9000 if fate else 1000}}))
"""


class PairCase(test_preflight.PreflightCase):
    def program(self, bad=""):
        (self.root / "bad").write_text(bad)
        program = self.root / "train"
        program.write_text(PROGRAM.format(python=harness.PYTHON, folder=str(self.root)))
        program.chmod(0o755)
        self.use(program)

    def use(self, program):
        self.spoil("", before="FAKE_NODE=$7; export FAKE_NODE;", arguments=f"--train-program {program}")

    def pair_job(self, nodes=4, spares=0):
        return self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", preflight={"pair_test": True},
            resources={"nodes": nodes, "ranks_per_node": 1, "spares": spares}))["id"]

    def pair_findings(self, job):
        return [one for attempt in job["attempts"] for one in attempt.get("preflight", [])
                if one["check"] == "pair_test"]

    def named(self, findings):
        return [(one["node"].rpartition("-")[2], one["severity"]) for one in findings]

    def partners(self, count):
        return [(self.root / f"partners-n{i}").read_text().split() for i in range(count)]


class PairTest(PairCase):
    def test_good_nodes_meet_two_others_and_train(self):
        self.program()
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL)
        self.assertEqual((done["state"], self.pair_findings(done)), ("succeeded", []))
        for met in self.partners(4):
            self.assertEqual(len(set(met)), 2, met)

    def test_a_spare_takes_the_place_of_a_slow_node(self):
        self.program("n2 slow\n")
        done = self.daemon.wait_state(self.pair_job(spares=1), harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.named(self.pair_findings(done)), [("n2", "fail")], done["attempts"])
        self.assertTrue(done["attempts"][0]["lost_nodes"][0].endswith("-n2"), done["attempts"])
        self.assertIn("9000 ms with ", self.pair_findings(done)[0]["found"])

    def test_without_a_spare_a_broken_node_is_refused_by_name(self):
        self.program("n1 fail\n")
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "node_lost"), done)
        self.assertTrue(done["cause"]["node"].endswith("-n1"), done["cause"])
        self.assertIn("exit code 1: the other node was not reached", done["cause"]["message"])

    def test_nodes_check_tests_pairs_too(self):
        self.program("n3 slow\n")
        done = self.cli("nodes", "check", "--nodes", "4", "--pair-test", "--json", code=1)
        found = [one for one in json.loads(done.stdout)["findings"] if one["check"] == "pair_test"]
        self.assertEqual(self.named(found), [("n3", "fail")])

    def test_a_program_that_hangs_is_ended_with_what_it_started(self):
        self.program("n0 hang\n")
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL, 90)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(self.named(self.pair_findings(done)), [("n0", "fail")])
        self.assertIn("not over within 20 s", done["cause"]["message"])
        pids = [int(pid) for pid in (self.root / "pids").read_text().split()]
        self.assertEqual(len(pids), 4)
        harness.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 20, "they are gone")

    def test_without_lockstep_train_it_is_said_and_the_job_runs(self):
        self.use(self.root / "nothing")
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.named(self.pair_findings(done)), [(f"n{i}", "warn") for i in range(4)])
        self.assertIn("lockstep-train is not installed", self.pair_findings(done)[0]["found"])

    def test_a_daemon_that_is_killed_in_the_middle_tests_them_anew(self):
        self.program("n2 fail\n")
        (self.root / "closed").touch()
        job = self.pair_job(nodes=3, spares=1)
        harness.wait_until(lambda: len(list(self.root.glob("partners-*"))) == 4, 20, "the first round runs")
        self.daemon.kill9()
        (self.root / "closed").unlink()
        self.daemon.start()
        done = self.daemon.wait_state(job, harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.named(self.pair_findings(done)), [("n2", "fail")], done["attempts"])

    def test_nobody_is_tested_unless_the_job_asks(self):
        self.program("n0 fail\n")
        done = self.daemon.wait_state(self.daemon.submit(self.job_of(4))["id"], harness.FINAL)
        self.assertEqual((done["state"], list(self.root.glob("partners-*"))), ("succeeded", []))


@unittest.skipUnless((harness.BIN / "lockstep-train").exists(), "SKIPPED: lockstep-train is not built")
class RealPairs(PairCase):
    def test_four_good_nodes(self):
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([one for one in self.pair_findings(done) if one["severity"] == "fail"], [])
        said = "".join(path.read_text() for path in self.daemon.data.glob("runs/**/agent-*.log"))
        self.assertEqual(said.count("test in pairs"), 8, said[-3000:])

    def test_a_node_whose_program_ends_is_told_from_its_partners(self):
        broken = self.root / "broken"
        broken.write_text(f"""#!/bin/sh
case "$FAKE_NODE" in *-n2) exit 3 ;; esac
exec {harness.BIN / 'lockstep-train'} "$@"
""")
        broken.chmod(0o755)
        self.use(broken)
        done = self.daemon.wait_state(self.pair_job(), harness.FINAL, 120)
        self.assertEqual(self.named(self.pair_findings(done)), [("n2", "fail")], done)


if __name__ == "__main__":
    unittest.main()
