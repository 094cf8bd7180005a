"""The pre-flight on a real Slurm: hosts in network namespaces, one of which its peers do not reach
although lockstepd does. That is what a wrong VLAN or a firewall between compute nodes looks like."""

import subprocess

import harness
from harness import BIN
from lockstep_slurm import SlurmTestCase, main
from slurm_hosts import ip


# Every host has two GPUs, as the fake library of tests/support/fake_nvml has it; n2's second one is bad.
GPUS_AGENT = """#!/bin/sh
gpus={root}/good
[ "$(hostname)" != n2 ] || gpus={root}/bad
export FAKE_NVML=$gpus LD_LIBRARY_PATH={library}
[ "$1" != run ] || set -- "$@" --preflight-root {root}/tree
exec {agent} "$@"
"""


class PreflightCase(SlurmTestCase):
    settings = {"nodes": 4}

    def isolate(self, lost):
        """`lost` and the other compute nodes do not reach each other; but for n1, where the batch
        script runs: srun must start the agents."""
        host = self.cluster.network.namespace(lost)
        for name in {"n2", "n3", "n4"} - {lost}:
            where = f"{self.cluster.addresses[name]}/32"
            ip(f"-n {host} route add blackhole {where}")
            self.addCleanup(ip, f"-n {host} route del blackhole {where}", check=False)

    def submit(self, nodes, **more):
        resources = {"nodes": nodes, "ranks_per_node": 1, "time_limit": "00:10:00",
                     **more.pop("resources", {})}
        return self.daemon.submit({"name": "meets", "framework": "command", "command": ["/bin/echo", "hi"],
                                   "resources": resources, **more})["id"]

    def failed(self, job):
        return {(one["node"], one["check"]) for attempt in job["attempts"]
                for one in attempt.get("preflight", []) if one["severity"] == "fail"}

    def test_a_node_that_its_peers_do_not_reach_is_named_and_ends_the_job(self):
        self.isolate("n2")
        done = self.daemon.wait_state(self.submit(4), harness.FINAL, 90)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(self.failed(done), {("n2", "reachable")}, done["attempts"])
        self.assertEqual((done["cause"]["class"], done["cause"]["node"]), ("node_lost", "n2"))
        self.assertEqual(len(done["attempts"]), 1, "it would be given the same node")

    def test_a_spare_takes_the_place_of_that_node(self):
        self.isolate("n3")
        done = self.daemon.wait_state(self.submit(3, resources={"spares": 1}), harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.failed(done), {("n3", "reachable")}, done["attempts"])
        self.assertEqual(done["attempts"][0]["lost_nodes"], ["n3"])

    def test_a_spare_takes_the_place_of_a_host_with_a_bad_gpu(self):
        root = self.daemon.root
        for path, text in {"tree/proc/driver/nvidia/version": "NVRM version: Module  570.1  Sat\n",
                           "tree/dev/nvidia0": "", "tree/dev/nvidia1": "",
                           "good": "gpus 2\n", "bad": "gpus 2\ngpu 1 ecc 2\n"}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        agent = root / "agent"
        agent.write_text(GPUS_AGENT.format(root=root, agent=BIN / "lockstep-agent",
                                           library=BIN.parent / "tests/fake_nvml/new"))
        agent.chmod(0o755)
        self.daemon.arguments = (*self.daemon.arguments, "--agent-path", str(agent))
        self.daemon.restart()
        done = self.daemon.wait_state(self.submit(3, resources={"spares": 1, "gpus_per_node": 2}),
                                      harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.failed(done), {("n2", "gpu_memory")}, done["attempts"])
        self.assertEqual(done["attempts"][0]["lost_nodes"], ["n2"])

    def test_nodes_check_finds_it_without_training_and_good_nodes_are_good(self):
        def check():
            return subprocess.run(
                [harness.BIN / "lockstep", "--url", self.daemon.url, "nodes", "check", "--nodes", "4"],
                capture_output=True, text=True, timeout=120,
                env={**self.daemon.environment(), "LOCKSTEP_TOKEN": self.daemon.token})

        good = check()
        self.assertEqual(good.returncode, 0, good.stdout + good.stderr)
        self.isolate("n3")
        bad = check()
        self.assertEqual(bad.returncode, 1, bad.stdout + bad.stderr)
        self.assertRegex(bad.stdout, r"n3 +reachable +fail")


if __name__ == "__main__":
    main()
