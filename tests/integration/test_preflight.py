"""The pre-flight: what is looked at on every node before the ranks meet, with real agents."""

import json
import os
import pathlib
import stat
import subprocess
import unittest

import harness


class PreflightCase(harness.TestCase):
    """Between lockstepd and its agents stands a script that makes the node a bad one: $7 is the
    argument of --node-name, which ends in -n0, -n1, -n2."""

    def spoil(self, node, before="", arguments="", program=None):
        agent = program or harness.BIN / "lockstep-agent"
        script = self.root / "agent"
        script.write_text(f"""#!/bin/sh
case "$1 $7" in "run "*{node}) {before} exec {agent} "$@" {arguments} ;; esac
exec '{harness.BIN / 'lockstep-agent'}' "$@"
""")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        self.daemon.stop()
        self.daemon.arguments = ("--agent-path", str(script))
        self.daemon.start()

    def tree(self, name, files):
        root = self.root / name
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return root

    def driver(self, name, version):
        return self.tree(name, {"proc/driver/nvidia/version":
                                f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Sat\n",
                                "dev/nvidia0": ""})

    def cli(self, *arguments, code=None):
        done = subprocess.run([harness.BIN / "lockstep", "--url", self.daemon.url, *arguments],
                              capture_output=True, text=True, timeout=90,
                              env={**self.daemon.environment(),
                                   "LOCKSTEP_TOKEN": self.daemon.token})
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def job_of(self, nodes=2, **fields):
        return harness.command_job("meet", "/bin/echo", "hi",
                                   resources={"nodes": nodes, "ranks_per_node": 1}, **fields)

    def findings(self, job):
        return [(one["node"].rpartition("-")[2], one["check"], one["severity"])
                for attempt in job["attempts"] for one in attempt.get("preflight", [])]


class Preflight(PreflightCase):
    # --- good nodes ---------------------------------------------------------------------------
    def test_nodes_check_runs_nothing_and_finds_nothing_on_good_nodes(self):
        done = self.cli("nodes", "check", "--nodes", "3", code=0)
        self.assertIn("3 nodes checked, none fails", done.stdout)
        job = self.daemon.get("/v1/jobs")["items"][0]
        self.assertEqual(job["state"], "succeeded")
        kinds = [event["kind"] for event in self.daemon.events(job["id"])]
        self.assertIn("preflight", kinds)
        self.assertNotIn("generation_started", kinds)
        self.assertFalse(list(pathlib.Path(self.daemon.data).glob("runs/*/a1/rank-*.log")))

    def test_a_job_of_three_nodes_starts_as_ever(self):
        job = self.daemon.submit(self.job_of(3))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual([one for one in self.findings(done) if one[2] == "fail"], [])

    def test_a_daemon_that_is_killed_in_the_middle_asks_the_agents_again(self):
        # Two nodes have said what they found when it is killed; the third comes after that. The
        # odd one is only known if the first two are asked once more.
        root = self.root / "roots"
        root.mkdir()
        for node, version in (("n0", "535.1.1"), ("n1", "525.1.1"), ("n2", "535.1.1")):
            (root / node).symlink_to(self.driver(f"driver-{node}", version))
        gate = self.root / "gate"
        self.spoil("", before=f'case "$7" in *-n2) until [ -e {gate} ]; do sleep 0.02; done ;; esac;',
                   arguments=f'--preflight-root "{root}/${{7##*-}}"')
        job = self.daemon.submit(self.job_of(3))
        self.daemon.wait_for(job["id"], lambda j: len((j["attempts"] or [{}])[0].get("nodes", [])) == 2)
        self.daemon.kill9()
        gate.touch()
        self.daemon.start()
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)
        found = [one for one in done["attempts"][0]["preflight"]
                 if one["check"] == "versions" and "driver" in one["found"]]
        self.assertEqual([one["found"] for one in found], ["its NVIDIA driver is 525.1.1"], done["attempts"])
        self.assertTrue(found[0]["node"].endswith("-n1"))

    # --- bad nodes ----------------------------------------------------------------------------
    def test_the_minority_version_is_named_and_only_warned_of_for_a_driver(self):
        self.spoil("-n1", arguments=f"--preflight-root {self.driver('other', '525.60.13')}")
        done = self.cli("nodes", "check", "--nodes", "3", "--json", code=0)
        # The made-up tree has no NCCL, which this machine may have.
        found = [one for one in json.loads(done.stdout)["findings"]
                 if one["check"] == "versions" and "NCCL" not in one["found"]]
        self.assertEqual([(one["severity"], one["found"]) for one in found],
                         [("warn", "its NVIDIA driver is 525.60.13")], done.stdout)
        self.assertTrue(found[0]["node"].endswith("-n1"))
        self.assertIn("as 2 of 3 nodes have", found[0]["expected"])

    def test_another_version_of_the_jobs_framework_on_a_node_fails_by_name(self):
        # Two environments, found by each node's own PATH as after an upgrade that missed one.
        for name, version in (("new", "2.60.0"), ("old", "2.9.0")):
            environment = self.tree(name, {f"lib/python3.11/site-packages/ray-{version}.dist-info/METADATA": "",
                                           "bin/train": "#!/bin/sh\n"})
            (environment / "bin/train").chmod(0o755)
        self.spoil("-n1", before=f"export PATH={self.root}/old/bin:$PATH;")
        self.daemon.stop()
        self.daemon.preload = {"PATH": f"{self.root}/new/bin:{os.environ['PATH']}"}
        self.daemon.start()
        spec = self.job_of(3, recovery={"max_restarts": 0})
        cause = self.daemon.wait_state(self.daemon.submit({**spec, "command": ["train"]})["id"], "failed")["cause"]
        self.assertIn("its ray is 2.9.0; expected 2.60.0, as 2 of 3 nodes have", cause["message"])
        self.assertTrue(cause["node"].endswith("-n1"), cause)

    def test_a_bad_nccl_on_one_of_three_nodes_fails_by_name(self):
        good = self.tree("good", {"usr/lib/libnccl.so.2.19.3": ""})
        bad = self.tree("bad", {"usr/lib/libnccl.so.2.18.1": ""})
        for tree in (good, bad):
            real = next((tree / "usr/lib").iterdir())
            (tree / "usr/lib/libnccl.so.2").symlink_to(real.name)
        root = self.root / "roots"
        root.mkdir()
        for node, tree in (("n0", good), ("n1", good), ("n2", bad)):
            (root / node).symlink_to(tree)
        self.spoil("", arguments=f'--preflight-root "{root}/${{7##*-}}"')
        done = self.cli("nodes", "check", "--nodes", "3", code=1)
        line = next(line for line in done.stdout.splitlines() if "NCCL" in line)
        self.assertRegex(line, r"-n2 +versions +fail")
        self.assertIn("2.18.1", done.stdout)
        self.assertIn("as 2 of 3 nodes have", " ".join(done.stderr.split()))
        # A job that wants to train says the same, and a spare takes the place.
        job = self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", resources={"nodes": 2, "ranks_per_node": 1, "spares": 1}))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)

    def test_ports_all_taken_is_named(self):
        shim = harness.BIN.parent / "tests" / "no_ports.so"
        self.spoil("-n1", before=f"LD_PRELOAD={shim}; export LD_PRELOAD;")
        job = self.daemon.submit(self.job_of(2))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed", done)
        self.assertIn(("n1", "ports", "fail"), self.findings(done))
        self.assertEqual(done["cause"]["class"], "node_lost")
        self.assertTrue(done["cause"]["node"].endswith("-n1"), done["cause"])
        self.assertIn("Address already in use", done["cause"]["message"])
        self.assertIn("expected 1 free TCP ports", done["cause"]["message"])

    def test_a_host_name_that_resolves_to_127_0_1_1_is_rejected_by_name(self):
        if os.geteuid() != 0:
            self.skipTest("needs root: names a host anew in a namespace")
        hosts = self.root / "hosts"
        hosts.write_text("127.0.0.1 localhost\n127.0.1.1 debian-like\n")
        inner = self.root / "renamed"
        inner.write_text(f"""#!/bin/sh
hostname debian-like && mount --bind {hosts} /etc/hosts
exec {harness.BIN / 'lockstep-agent'} "$@"
""")
        inner.chmod(0o755)
        if subprocess.run(["unshare", "-um", "hostname", "x"], check=False).returncode != 0:
            self.skipTest("no namespaces here")
        self.spoil("-n1", program=f"unshare -um {inner}")
        job = self.daemon.submit(self.job_of(2))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "succeeded", done)  # the proven address was given out
        found = [one for one in done["attempts"][0].get("preflight", [])
                 if one["check"] == "hostname" and one["node"].endswith("-n1")]
        self.assertEqual([one["found"] for one in found],
                         ["host name debian-like resolves to 127.0.1.1"], done["attempts"])
        shown = self.cli("show", job["id"], code=0).stdout
        self.assertIn("debian-like resolves to 127.0.1.1", " ".join(shown.split()))

    def test_a_working_directory_that_one_node_has_not_is_that_nodes_failure(self):
        if os.geteuid() != 0:
            self.skipTest("needs root: hides a folder in a namespace")
        folder = self.root / "only" / "here"
        folder.mkdir(parents=True)
        inner = self.root / "without"
        inner.write_text(f"""#!/bin/sh
mount -t tmpfs none {folder.parent}
exec {harness.BIN / 'lockstep-agent'} "$@"
""")
        inner.chmod(0o755)
        self.spoil("-n1", program=f"unshare -m {inner}")
        job = self.daemon.submit(self.job_of(2, working_directory=str(folder)))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual(done["state"], "failed", done)
        self.assertEqual(done["cause"]["class"], "node_lost")
        self.assertIn(("n1", "working_directory", "fail"), self.findings(done))

    def test_mode_off_asks_nothing(self):
        shim = self.driver("other", "1.2.3")
        self.spoil("-n1", arguments=f"--preflight-root {shim}")
        job = self.daemon.submit(self.job_of(2, preflight={"mode": "off"}))
        done = self.daemon.wait_state(job["id"], harness.FINAL)
        self.assertEqual((done["state"], self.findings(done)), ("succeeded", []))

    def test_bad_input_is_refused_by_name(self):
        for preflight, pointer in (({"mode": "maybe"}, "/preflight/mode"),
                                   ({"mode": "off", "cpu_test": True}, "/preflight/cpu_test"),
                                   ({"mode": "off", "gpu_test": True}, "/preflight/gpu_test"),
                                   ({"mode": "off", "pair_test": True}, "/preflight/pair_test"),
                                   ({"fast": True}, "/preflight/fast"),
                                   ({"mode": "only"}, "/preflight/mode")):
            body = self.job_of(2, preflight=preflight)
            body["resources"]["spares"] = 1 if preflight == {"mode": "only"} else 0
            answer = self.daemon.api("POST", "/v1/jobs", body)
            self.assertEqual(answer[0], 400, answer)
            self.assertEqual(answer[1]["errors"][0]["pointer"], pointer)


if __name__ == "__main__":
    unittest.main()
