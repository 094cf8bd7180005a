"""The local scheduler hands out GPUs: each to one job at a time, by name, over nodes and restarts of
lockstepd. The names come from lockstepd's own CUDA_VISIBLE_DEVICES; no GPU is needed to give one."""

import pathlib
import re

import harness

NAMES = "GPU-0a,MIG-1b,2"
SHOW = 'echo "sees [${CUDA_VISIBLE_DEVICES-unset}]"; until [ -e "$0" ]; do sleep 0.05; done'


class GpuDaemon(harness.Daemon):
    def environment(self):
        # Of whoever runs the tests neither ~/.nccl.conf nor an interface.
        inherited = {name: value for name, value in super().environment().items()
                     if not name.startswith(("NCCL_", "GLOO_"))}
        return {**inherited, "HOME": str(self.root), "CUDA_VISIBLE_DEVICES": NAMES, "LOCKSTEP_LOCAL_CORES": "8"}


class LocalGpus(harness.TestCase):
    def setUp(self):
        plain = harness.Daemon
        harness.Daemon = GpuDaemon
        self.addCleanup(setattr, harness, "Daemon", plain)
        super().setUp()
        self.ends = 0

    def submit(self, gpus, nodes=1, **fields):
        """The job and the file that ends it."""
        self.ends += 1
        end = self.root / f"end{self.ends}"
        job = self.daemon.submit(harness.command_job(
            "gpus", "/bin/sh", "-c", SHOW, end, preflight={"mode": "off"},
            resources={"nodes": nodes, "ranks_per_node": 1, "gpus_per_node": gpus}, **fields))
        return job["id"], end

    def sees(self, job, rank=0):
        self.daemon.wait_state(job, ("running", "succeeded"))
        said = lambda: re.search(r"sees \[(.*)\]", self.daemon.rank_log(job, rank))
        return harness.wait_until(said, 20, "the rank says what it sees").group(1)

    def test_jobs_that_run_together_have_gpus_of_their_own(self):
        one, end = self.submit(1, nodes=2)
        other, other_end = self.submit(1)
        self.assertEqual([self.sees(one, 0), self.sees(one, 1)], ["GPU-0a", "MIG-1b"])
        self.assertEqual(self.sees(other), "2")
        waiting, waiting_end = self.submit(2)
        reason = self.daemon.wait_for(waiting, lambda job: "GPUs" in job.get("pending_reason", ""), 20, "it waits")
        self.assertIn("needs 2, 0 free", reason["pending_reason"])
        end.touch()
        self.daemon.wait_state(one, "succeeded")
        self.assertEqual(self.sees(waiting), "GPU-0a,MIG-1b")
        for path in (other_end, waiting_end):
            path.touch()
        self.daemon.wait_state(waiting, "succeeded")

    def test_a_restarted_lockstepd_gives_nobody_what_a_running_job_has(self):
        one, end = self.submit(1)
        two, two_end = self.submit(1)
        self.assertEqual([self.sees(one), self.sees(two)], ["GPU-0a", "MIG-1b"])
        end.touch()
        self.daemon.wait_state(one, "succeeded")
        self.daemon.restart()
        three, three_end = self.submit(2)
        self.assertEqual(self.sees(three), "GPU-0a,2")
        for path in (two_end, three_end):
            path.touch()
        for job in (two, three):
            self.daemon.wait_state(job, "succeeded")

    def test_a_restarted_lockstepd_starts_nothing_that_waits_before_it_knows_all_that_runs(self):
        # The second job, which waits behind the third, was started on the third one's GPUs: its id comes first.
        one, end = self.submit(3)
        two, two_end = self.submit(3, after=[one])
        three, three_end = self.submit(3)
        waits = lambda job: "needs 3, 0 free" in job.get("pending_reason", "")
        self.daemon.wait_for(three, waits, 20, "it waits for GPUs")
        end.touch()
        self.assertEqual(self.sees(three), NAMES)
        self.daemon.wait_for(two, waits, 20, "the second waits for the third")
        self.daemon.restart()
        self.daemon.wait_for(two, waits, 20, "and still does")
        self.assertEqual(self.daemon.job(three)["state"], "running")
        three_end.touch()
        self.assertEqual(self.sees(two), NAMES)
        two_end.touch()
        self.daemon.wait_state(two, "succeeded")

    def test_a_job_that_asks_for_none_sees_none_and_is_told(self):
        job, end = self.submit(0)
        self.assertEqual(self.sees(job), "")
        self.assertIn("gpus_per_node is 0: the ranks see none of this machine's 3 GPUs",
                      self.daemon.job(job)["warnings"])
        end.touch()
        self.daemon.wait_state(job, "succeeded")

    def test_keras_whose_backend_nobody_names_is_told_what_its_ranks_see(self):
        spec = {"name": "keras", "framework": "keras", "command": ["/bin/true"],
                "resources": {"nodes": 1, "ranks_per_node": 3, "gpus_per_node": 3}}
        def warned(**fields):
            status, answer = self.daemon.api("POST", "/v1/jobs/render", {**spec, **fields})[:2]
            self.assertEqual(status, 200, answer)
            return "KERAS_BACKEND" in " ".join(answer["warnings"])
        self.assertTrue(warned())
        self.assertFalse(warned(environment={"KERAS_BACKEND": "torch"}))
        self.assertFalse(warned(inherit_environment=True, recorded_environment={"KERAS_BACKEND": "torch"}))
        self.assertFalse(warned(resources={"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 3}), "it sees all")
        self.assertFalse(warned(framework="tensorflow"))

    def test_ranks_that_share_a_gpu_are_told_that_it_is_slow(self):
        def warnings(**resources):
            spec = {"name": "shared", "framework": "command", "command": ["/bin/true"], "resources": {"nodes": 1, **resources}}
            status, answer = self.daemon.api("POST", "/v1/jobs/render", spec)[:2]
            self.assertEqual(status, 200, answer)
            return [text for text in answer["warnings"] if "share each GPU" in text]
        self.assertEqual(warnings(ranks_per_node=2, gpus_per_node=1, ranks_per_gpu=2),
                         ["2 ranks share each GPU (resources.ranks_per_gpu), and its memory: to try out a script, not to train fast"])
        self.assertEqual(warnings(ranks_per_node=2, gpus_per_node=2), [])

    def test_the_native_trainer_does_not_take_gpus_it_cannot_use(self):
        spec = {"name": "native", "framework": "native", "resources": {"gpus_per_node": 1}, "train": {"devices": "cpu"}}
        for path in ("/v1/jobs", "/v1/jobs/render"):
            self.assert_problem(self.daemon.api("POST", path, spec), 400, "/resources/gpus_per_node", "would idle")
        spec["preflight"] = {"mode": "only"}  # starts no trainer
        self.assertEqual(self.daemon.api("POST", "/v1/jobs/render", spec)[0], 200)

    def test_nccl_gloo_and_rpc_get_the_interface_that_was_proven(self):
        script = 'echo "gloo $GLOO_SOCKET_IFNAME rpc $TP_SOCKET_IFNAME nccl $NCCL_SOCKET_IFNAME"'
        conf = self.root / "nccl.conf"
        conf.write_text("# of the site\nNCCL_SOCKET_IFNAME=ib0\n", encoding="utf-8")
        def said(**environment):
            job = self.daemon.submit(harness.command_job("nccl", "/bin/sh", "-c", script,
                                                         environment=environment))["id"]
            self.daemon.wait_state(job, "succeeded")
            return self.daemon.rank_log(job).strip()
        if not pathlib.Path("/etc/nccl.conf").exists():
            self.assertEqual(said(), "gloo lo rpc lo nccl =lo")
        self.assertEqual(said(NCCL_SOCKET_IFNAME="eth7"), "gloo lo rpc lo nccl eth7")
        self.assertEqual(said(TP_SOCKET_IFNAME="ib1", NCCL_SOCKET_IFNAME="eth7"), "gloo lo rpc ib1 nccl eth7")
        self.assertEqual(said(NCCL_CONF_FILE=str(conf)), "gloo lo rpc lo nccl")

    def test_the_test_of_gpus_without_gpus_says_which_one_is_meant(self):
        spec = harness.command_job("old", "/bin/true", preflight={"gpu_test": True})
        for path in ("/v1/jobs", "/v1/jobs/render"):
            self.assert_problem(self.daemon.api("POST", path, spec), 400, "/preflight/gpu_test", "is cpu_test")
        refused = self.daemon.cli("nodes", "check", "--gpu-test", check=False)
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("--gpu-test needs --gpus N", refused.stderr)
        self.assertIn("--cpu-test", refused.stderr)


if __name__ == "__main__":
    harness.main()
