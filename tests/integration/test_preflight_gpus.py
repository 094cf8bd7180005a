"""The pre-flight's look at GPUs and network ports: real agents that open the library of
tests/support/fake_nvml, of which one node's has a bad GPU, and made-up trees of /proc and /sys."""

import json
import pathlib
import unittest

import harness
import test_preflight

LIBRARIES = harness.BIN.parent / "tests" / "fake_nvml"
GOOD = "gpus 2\ngpu * links 4\n"


class PreflightGpus(test_preflight.PreflightCase):
    def nodes(self, bad, of="-n1", files=None, others=None, library="new"):
        """Every node has two GPUs; those of the node that ends in `of` are as the script `bad` says."""
        if not (LIBRARIES / library / "libnvidia-ml.so.1").exists():
            self.fail("the fake library is not built: target fake_nvml_new")
        driver = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1  Sat\n",
                  "dev/nvidia0": "", "dev/nvidia1": "", "dev/kmsg": ""}
        for kind, script, more in (("good", GOOD, others or {}), ("bad", GOOD + bad, files or {})):
            self.tree(kind, {**driver, "gpus": script, **more})
        # Each simulated node is a machine of its own here: its GPUs are 0 and 1, whatever the local
        # scheduler hands out of the eight that it believes in.
        self.spoil("", before=f'unset CUDA_VISIBLE_DEVICES; case "$7" in *{of}) T={self.root}/bad ;; *) T={self.root}/good ;; esac; '
                              f'export FAKE_NVML=$T/gpus LD_LIBRARY_PATH={LIBRARIES / library};',
                   arguments='--preflight-root "$T"')
        self.daemon.stop()
        self.daemon.arguments = (*self.daemon.arguments, "--local-gpus", "8")
        self.daemon.start()

    def gpu_job(self, nodes=2, spares=0, **fields):
        return self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", resources={"nodes": nodes, "ranks_per_node": 1,
                                                  "gpus_per_node": 2, "spares": spares}, **fields))

    def of_devices(self, findings):
        """Without what this machine's name or limits may be warned of."""
        return [(one["node"].rpartition("-")[2], one["check"], one["severity"]) for one in findings
                if one["check"].startswith(("gpu", "nvlink", "nic"))]

    def findings(self, job):
        return self.of_devices(one for attempt in job["attempts"] for one in attempt.get("preflight", []))

    def checked(self, code):
        done = self.cli("nodes", "check", "--nodes", "2", "--gpus", "2", "--json", code=code)
        return self.of_devices(json.loads(done.stdout)["findings"])

    def test_good_gpus_have_no_finding(self):
        self.nodes("")
        self.assertEqual(self.checked(code=0), [])
        done = self.daemon.wait_state(self.gpu_job()["id"], harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))

    def test_a_spare_takes_the_place_of_a_node_with_a_bad_gpu(self):
        self.nodes("gpu 1 remap 0 1\n")
        done = self.daemon.wait_state(self.gpu_job(spares=1)["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.findings(done), [("n1", "gpu_memory", "fail")])
        attempt = done["attempts"][0]
        self.assertTrue(attempt["lost_nodes"][0].endswith("-n1"), attempt)
        self.assertIn("GPU 1 (00000000:02:00.0) could not remap a faulty row of its memory",
                      [one["found"] for one in attempt["preflight"]])

    def test_without_a_spare_the_job_is_refused_by_name(self):
        self.nodes("gpu 0 field 230 int 1\n")
        done = self.daemon.wait_state(self.gpu_job()["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(self.findings(done), [("n1", "gpu_recovery", "fail")])
        self.assertEqual(done["cause"]["class"], "gpu_fault")
        self.assertTrue(done["cause"]["node"].endswith("-n1"), done["cause"])
        self.assertIn("its driver asks for a reset of the GPU; expected", done["cause"]["message"])

    def test_nodes_check_shows_everything_that_is_wrong(self):
        self.nodes("gpu 0 ecc 3\ngpu 0 remap 1 0\ngpu 1 field 230 int 2\ngpu 0 reasons 0x48\n"
                   "gpu 1 process 999999 1048576\ngpu 1 link 2 down\ngpu 0 linkerrors 1 9 0 0\n")
        found = self.checked(code=1)
        self.assertEqual({one[0] for one in found}, {"n1"})
        self.assertEqual(sorted(one[1:] for one in found), sorted([
            ("gpu_memory", "fail"), ("gpu_memory", "fail"), ("gpu_recovery", "fail"), ("nvlink", "fail"),
            ("gpu_clocks", "warn"), ("gpu_in_use", "warn"), ("nvlink", "warn")]))
        shown = self.cli("nodes", "check", "--nodes", "2", "--gpus", "2", code=1)
        self.assertRegex(shown.stdout, r"-n1 +gpu_memory +fail +GPU 0 ")
        self.assertIn("3 uncorrected memory errors", " ".join(shown.stdout.split()))

    def test_a_lost_gpu_is_found_before_the_ranks_find_it(self):
        self.nodes("gpu 1 lost\n")
        self.assertEqual(self.checked(code=1), [("n1", "gpu", "fail")])

    def test_a_job_without_gpus_does_not_ask_the_driver(self):
        self.nodes("hang\n", of="")  # whoever asks does not get an answer, and that is a finding
        done = self.daemon.wait_state(self.daemon.submit(self.job_of(2))["id"], harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))

    def test_a_driver_that_does_not_answer_delays_and_is_named(self):
        self.nodes("hang\n")
        found = self.checked(code=0)
        self.assertEqual(found, [("n1", "gpu", "warn")])

    def test_what_an_old_driver_does_not_tell_is_said_and_harms_nobody(self):
        self.nodes("driver 470.1\n", of="", library="old")
        self.assertEqual(sorted(self.checked(code=0)), [("n0", "gpu_unseen", "warn"), ("n1", "gpu_unseen", "warn")])
        done = self.daemon.wait_state(self.gpu_job()["id"], harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))

    def test_an_rdma_port_that_is_down_on_one_node(self):
        port = "sys/class/infiniband/mlx5_0/ports/1/state"
        self.nodes("", files={port: "1: DOWN\n"}, others={port: "4: ACTIVE\n"})
        done = self.daemon.wait_state(self.gpu_job(2, spares=1)["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        found = [one for one in done["attempts"][0]["preflight"] if one["check"] == "nic"]
        self.assertEqual([(one["severity"], one["found"], one["expected"]) for one in found],
                         [("fail", "port mlx5_0:1 is DOWN", "ACTIVE, as on 2 of 3 nodes that have it")])

    def test_a_port_that_nccl_is_told_to_take_must_be_active(self):
        port = "sys/class/infiniband/mlx5_0/ports/1/state"
        self.nodes("", files={port: "2: INIT\n"}, others={port: "4: ACTIVE\n"})
        job = self.gpu_job(environment={"NCCL_IB_HCA": "=mlx5_0"})
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual((done["state"], done["cause"]["class"]), ("failed", "node_lost"), done)
        self.assertIn("port mlx5_0:1 is INIT; expected ACTIVE, as NCCL_IB_HCA takes it",
                      done["cause"]["message"])
        job = self.gpu_job(environment={"NCCL_IB_HCA": "^mlx5_0"})
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))

    def test_ranks_get_the_rdma_ports_that_are_active_on_every_node(self):
        state = "sys/class/infiniband/mlx5_{}/ports/1/state".format
        self.nodes("", files={state(0): "4: ACTIVE\n", state(1): "1: DOWN\n"},
                   others={state(0): "4: ACTIVE\n", state(1): "4: ACTIVE\n"})
        conf = self.root / "nccl.conf"
        conf.write_text("NCCL_IB_HCA=mlx5\n", encoding="utf-8")
        def told(nodes=2, **environment):
            job = self.daemon.submit(harness.command_job(
                "ports", "/bin/sh", "-c", "echo ports $NCCL_IB_HCA", environment=environment,
                resources={"nodes": nodes, "ranks_per_node": 1, "gpus_per_node": 2}))["id"]
            self.daemon.wait_state(job, "succeeded")
            return [self.daemon.rank_log(job, rank).strip() for rank in range(nodes)]
        if not pathlib.Path("/etc/nccl.conf").exists():
            self.assertEqual(told(), ["ports =mlx5_0:1", "ports =mlx5_0:1"])
        self.assertEqual(told(1), ["ports"])
        self.assertEqual(told(NCCL_IB_HCA="=mlx5_0"), ["ports =mlx5_0", "ports =mlx5_0"])
        self.assertEqual(told(NCCL_CONF_FILE=str(conf)), ["ports", "ports"])


if __name__ == "__main__":
    unittest.main()
