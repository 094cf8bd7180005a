"""lockstep-agent and lockstep for nodes of other distributions: what they ask of a node, jobs that they run here, and, in
a folder with another distribution's files, there (LOCKSTEP_OLD_ROOT: tests/packages/run makes one)."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import harness

PORTABLE = harness.BIN.parent / "portable"
PROGRAMS = ("lockstep-agent", "lockstep")
GLIBC = (2, 28)  # Rocky 8's
LARGEST = 15_000_000
OF_GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
FAKE_NVML = harness.BIN.parent / "tests" / "fake_nvml" / "new"
OLD_ROOT = os.environ.get("LOCKSTEP_OLD_ROOT")
CAN_CHROOT = OLD_ROOT and os.geteuid() == 0 and shutil.which("unshare") and shutil.which("chroot")
BUILT = all((PORTABLE / program).exists() for program in PROGRAMS)
WHY_NOT = "the portable programs are not built (deploy/install-deps --portable, then cmake again)"


def told_by(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@unittest.skipUnless(BUILT, WHY_NOT)
class Elf(unittest.TestCase):
    def test_they_need_glibc_2_28_and_nothing_else(self):
        for program in PROGRAMS:
            with self.subTest(program):
                path = PORTABLE / program
                needed = set(re.findall(r"NEEDED.*\[(.*)\]", told_by("readelf", "--wide", "-d", path)))
                self.assertLessEqual(needed, OF_GLIBC)
                versions = {tuple(map(int, found.split(".")))
                            for found in re.findall(r"GLIBC_(\d[\d.]*)", told_by("objdump", "-T", path))}
                self.assertTrue(versions)
                self.assertLessEqual(max(versions), GLIBC)
                self.assertNotIn("GLIBCXX", told_by("objdump", "-T", path))

    def test_they_are_stripped_small_and_as_hardened_as_the_others(self):
        for program in PROGRAMS:
            with self.subTest(program):
                path = PORTABLE / program
                self.assertLess(path.stat().st_size, LARGEST)
                self.assertNotIn(".symtab", told_by("readelf", "--wide", "-S", path))
                self.assertRegex(told_by("readelf", "--wide", "-h", path), r"Type:\s+DYN")
                self.assertRegex(told_by("readelf", "--wide", "-d", path), r"BIND_NOW|Flags:.*\bNOW\b")
                self.assertRegex(told_by("readelf", "--wide", "-l", path), r"GNU_STACK\s.*\sRW\s")

    def test_they_say_the_version_of_the_others(self):
        for program in PROGRAMS:
            self.assertEqual(told_by(PORTABLE / program, "--version"), told_by(harness.BIN / program, "--version"))


class PortableDaemon(harness.Daemon):
    def environment(self):
        return {**super().environment(), "LD_LIBRARY_PATH": str(FAKE_NVML), "FAKE_NVML": str(self.root / "gpus")}


class Case(harness.TestCase):
    def setUp(self):
        plain = harness.Daemon
        harness.Daemon = PortableDaemon
        self.addCleanup(setattr, harness, "Daemon", plain)
        super().setUp()
        (self.root / "gpus").write_text("gpu * utilization 50\n")

    def cli(self, *arguments):
        return subprocess.run([PORTABLE / "lockstep", *arguments], capture_output=True, text=True, timeout=60 * harness.PATIENCE,
                              env={**self.daemon.environment(), "LOCKSTEP_DATA_DIR": str(self.daemon.data)}, check=False)


@unittest.skipUnless(BUILT, WHY_NOT)
class Jobs(Case):
    """The whole of a job by the portable programs, on this machine."""

    def run_job(self, report):
        file = self.root / "job.yaml"
        file.write_text("name: portable\nframework: command\nresources: {nodes: 1, ranks_per_node: 2}\n"
                        f"command: [{report}, report, step=3, loss=0.25]\n")
        done = self.cli("submit", file, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        job = re.search(r'"id": ?"(ls-\w+)"', done.stdout).group(1)
        self.daemon.wait_state(job, "succeeded")
        self.assertEqual({rank: points[0][0] for rank, points in self.daemon.series(job).items()}, {0: 3, 1: 3})
        return job

    def restart_with(self, agent):
        self.daemon.stop()
        self.daemon.arguments = ("--agent-path", str(agent))
        self.daemon.start()

    def test_a_job_from_yaml_to_its_loss(self):
        self.restart_with(PORTABLE / "lockstep-agent")
        job = self.run_job(PORTABLE / "lockstep-agent")
        self.assertIn("0.25", self.cli("show", job).stdout)

    @unittest.skipUnless((FAKE_NVML / "libnvidia-ml.so.1").exists(), "the fake NVML is not built")
    def test_nvml_is_loaded_at_run_time(self):
        self.restart_with(PORTABLE / "lockstep-agent")
        job = self.daemon.submit(harness.command_job("gpus", "/bin/sleep", "1000", resources={"nodes": 1, "ranks_per_node": 1}))["id"]
        self.daemon.wait_state(job, "running")
        harness.wait_until(lambda: "lockstep_gpu_" in self.daemon.text("/metrics"), 30, "GPUs of the fake library")
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")

    @unittest.skipUnless(CAN_CHROOT, "LOCKSTEP_OLD_ROOT names no folder of another distribution, or this is not root")
    def test_a_job_in_another_distribution(self):
        root = pathlib.Path(OLD_ROOT)
        here = self.root / "node"
        agent = self.root / "agent"
        # Mounts of a namespace of its own: they are gone with the agent.
        agent.write_text(f"""#!/bin/sh
exec unshare --mount sh -euc '
mkdir -p "$0{self.root}" "$0/proc" "$0/dev"
mount --rbind {self.root} "$0{self.root}"
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" {here}/lockstep-agent "$@"' {root} "$@"
""")
        agent.chmod(0o755)
        here.mkdir()
        for program in PROGRAMS:
            shutil.copy2(PORTABLE / program, here)
        self.restart_with(agent)
        job = self.run_job(here / "lockstep-agent")
        self.assertNotEqual(self.daemon.job(job)["state"], "failed")
        there = ["unshare", "--mount", "sh", "-euc", f'mkdir -p "$0{here}"; mount --bind {here} "$0{here}"; exec chroot "$0" "$@"', root]
        self.assertEqual(told_by(*there, here / "lockstep", "--version"), told_by(harness.BIN / "lockstep", "--version"))
        self.assertIn("Usage", told_by(*there, here / "lockstep-agent", "--help"))


if __name__ == "__main__":
    harness.main()
