"""Ranks that wait for each other before the first step, in real torch: one look at the job says for whom."""

import unittest

import harness

SCRIPT = """import os, pathlib, time
import torch.distributed as dist
def wait_for_a_file(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.05)
def main():
    {late}
    dist.init_process_group("gloo")
    for step in range(1, 4):
        print(f"step={{step}} loss={{1 / step}}", flush=True)
    dist.destroy_process_group()
main()
"""


@unittest.skipUnless(harness.has_module("torch"), "python3-torch is not installed")
class StartHang(harness.TestCase):
    DAEMON_ARGUMENTS = ("--local-cores", "16", "--local-memory-mb", "64000")  # the three jobs at the same time

    def submit(self, name, late):
        script = self.root / f"{name}.py"
        script.write_text(SCRIPT.format(late=late))
        return self.daemon.submit(harness.command_job(
            name, harness.PYTHON, script, framework="pytorch", working_directory=str(self.root),
            resources={"nodes": 1, "ranks_per_node": 3}, recovery={"max_restarts": 0, "on": ["hang"]}))["id"]

    def test_who_is_not_there_is_named_and_nothing_is_ended(self):
        gate = self.root / "gate"
        late = self.submit("late", f'if os.environ["RANK"] == "1": wait_for_a_file({str(gate)!r})')
        # The other mistake that strangers make: a world that is larger than the job.
        large = self.submit("large", 'os.environ["WORLD_SIZE"] = "4"')
        alone = self.submit("alone", f'wait_for_a_file({str(gate)!r})')

        told = self.daemon.wait_for(late, lambda job: "hang" in job, 120, "the rank that is late is told of")["hang"]
        self.assertEqual(told["rank"], 1, told)
        self.assertRegex(told["message"], "^no rank has made its first step for [0-9]+ s; rank 1 alone is in "
                                          "late.py:[45] wait_for_a_file; 2 wait in init_process_group")
        self.assertIn("wait_for_a_file", self.daemon.cli("show", late).stdout)

        told = self.daemon.wait_for(large, lambda job: "hang" in job, 120, "the world that is too large is told of")["hang"]
        self.assertNotIn("rank", told)
        self.assertRegex(told["message"], r"all 3 wait in init_process_group \(large.py:[0-9]+ main\): do all use the same "
                                          r"address, port and number of ranks\? The job goes on$")

        gate.touch()
        done = self.daemon.wait_state(late, "succeeded", 60)
        self.assertNotIn("hang", done)
        self.assertEqual(done["anomalies"]["hang"], 1)
        # Ranks that do not wait for each other have not been called a hang, in the same time.
        self.assertNotIn("hang", self.daemon.wait_state(alone, "succeeded", 60).get("anomalies", {}))
        self.daemon.api("POST", f"/v1/jobs/{large}/cancel")
        self.daemon.wait_state(large, "cancelled", 60)


if __name__ == "__main__":
    harness.main()
