"""The rank that is to blame is named: ordinary torch scripts that fail or hang in the ways people meet.

`tests/fault/run culprit` runs many of each and torchrun beside them."""

import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault"))
import culprit  # noqa: E402


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class Culprit(harness.TestCase):
    def judge(self, kind, number):
        rank, step = (number * 3 + 1) % 4, 2 + number
        wrong, job = culprit.run_here(self.daemon, kind, rank, step)
        return kind, rank, wrong, job

    def check(self, kinds):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda one: self.judge(*one), kinds))
        for kind, rank, wrong, job in found:
            with self.subTest(kind=kind, rank=rank):
                self.assertEqual(wrong, "", job["cause"])
        return found

    def test_a_rank_that_fails_is_named_with_its_exception(self):
        found = self.check([(kind, number) for number, kind in enumerate(culprit.FAILURES)])
        for kind, rank, _, job in found:
            if kind != "finally":
                continue
            # What a person sees: the traceback, not the losses; the others in a line each.
            show = self.daemon.cli("show", job["id"]).stdout
            self.assertIn(f"rank {rank} on ", show)
            self.assertIn("in read_labels", show)
            self.assertIn("ValueError: label 17 out of range", show)
            self.assertNotIn("loss 0.", show)
            self.assertIn("also failed", show)
            self.assertEqual({one["failure"] for one in job["cause"]["others"]} - {"echo", "network"}, set(), job)
            for text in ("'log_tail'", "'traceback'"):
                self.assertEqual(str(job).count(text), 1, f"{text} is told once: {job}")

    def test_a_rank_that_hangs_is_named_with_its_place(self):
        self.check([(kind, number) for number, kind in enumerate(("lock", "sleep", "order"))])

    def test_a_rank_of_a_launcher_that_hangs_is_named_with_its_place(self):
        for _, rank, _, job in self.check([("spawn-lock", 1), ("torchrun-lock", 2)]):
            # What a person sees: which rank, and where it stands.
            show = self.daemon.cli("show", job["id"]).stdout
            self.assertIn(f"rank {rank} on ", show)
            self.assertIn("wait_for_data_loader", show)

    def test_without_the_hooks_what_it_prints_names_it(self):
        spec = culprit.spec("finally", 2, 3)
        spec["environment"] = {"LOCKSTEP_PYTHON_HOOKS": "off"}
        done = self.daemon.wait_state(self.daemon.submit(spec)["id"], harness.FINAL, 120)
        self.assertEqual((done["cause"]["rank"], done["cause"]["exception"]["type"]), (2, "ValueError"), done)


class MissingHooks(harness.TestCase):
    """Programs that were copied without their share folder name wrong ranks, and nothing else shows it."""

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lockstep-copied-"))) / "bin"
        folder.mkdir()
        self.agent = shutil.copy2(harness.BIN / "lockstep-agent", folder)
        self.daemon.stop()
        self.daemon.arguments += ("--agent-path", self.agent)
        self.daemon.start()

    def warnings(self, **fields):
        job = self.daemon.submit(harness.command_job("copied", "/bin/true", **fields))["id"]
        return " ".join(self.daemon.wait_state(job, "succeeded").get("warnings", []))

    def test_a_job_is_warned_and_lockstepd_s_log_says_it(self):
        self.assertIn("Python hooks are missing", self.daemon.log.read_text())
        said = self.warnings()
        self.assertIn("the wrong rank may be named", said)
        self.assertIn(str(pathlib.Path(self.agent).parents[1] / "share/lockstep/python/hooks"), said)
        self.assertNotIn("hooks", self.warnings(environment={"LOCKSTEP_PYTHON_HOOKS": "off"}))


class HangWarning(harness.TestCase):
    """A hang is told whatever recovery says, and ends nothing without it."""

    SCRIPT = ("import os, time\n"
              "def wait_for_a_file():\n"
              "    while not os.path.exists('go'):\n        time.sleep(0.02)\n"
              "for step in range(1, 30):\n"
              "    print(f'step {step} loss {1 / step:.4f}', flush=True)\n"
              "    time.sleep(0.1 if step > 10 else 0.02)\n"
              "    if step == 10:\n        wait_for_a_file()\n")

    def test_it_is_told_with_the_place_and_taken_back(self):
        script = self.root / "train.py"
        script.write_text(self.SCRIPT)
        job_id = self.daemon.submit(harness.command_job(
            "slow", harness.PYTHON, script, working_directory=str(self.root), watch={"hang_seconds": 5},
            resources={"nodes": 1, "ranks_per_node": 2}))["id"]
        job = self.daemon.wait_for(job_id, lambda job: "hang" in job, 60, "the hang is told")
        self.assertEqual(job["state"], "running")
        self.assertEqual(job["hang"]["step"], 10, job["hang"])
        self.assertIn("train.py:4 wait_for_a_file", job["hang"]["message"])
        show = self.daemon.cli("show", job_id).stdout
        self.assertIn("HANGS", show)
        self.assertIn("train.py:4 wait_for_a_file", show)
        self.assertGreater(job["spans"]["stalled_seconds"], 2.5, "from its beginning")
        kinds = [event["kind"] for event in self.daemon.events(job_id)]
        self.assertLess(kinds.index("evidence_taken"), kinds.index("anomaly"))
        (self.root / "go").write_text("")
        done = self.daemon.wait_state(job_id, "succeeded", 60)
        self.assertNotIn("hang", done)
        told = [event["data"] for event in self.daemon.events(job_id) if event["kind"] == "anomaly"]
        self.assertEqual([bool(one.get("over")) for one in told if one["anomaly"] == "hang"], [False, True], told)


if __name__ == "__main__":
    harness.main()
