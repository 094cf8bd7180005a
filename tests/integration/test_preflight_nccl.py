"""preflight.nccl_test: real agents run the real lockstep-nccl-test on a DOUBLE of NCCL and of the CUDA driver
(tests/support/nccl_double: sockets and host memory), which a test makes slow, wrong, stuck or old on a node. What passes
proves Lockstep's half and nothing of NCCL itself. A good pair is checked with the real programs, driver and NCCL, too, where
there is a GPU (`tests/gpu`; ctest's gpu.preflight_nccl)."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import gpu_tests
import harness
import test_nccl
import test_preflight
import test_preflight_gpu_test

DOUBLE = harness.BIN.parent / "tests" / "nccl_double" / "libnccl.so.2"
PROGRAM = harness.BIN / "lockstep-nccl-test"
# Of every node that a test does not spoil: so slow that other work on this machine does not matter.
EVEN = "gpus=2 slow=10"
# So much slower that a load which halves the others' pace leaves it below half of the median.
SLOW = "slow=160"

# Finds the double as an operator's programs find NCCL; a node's file says what is wrong with it.
WRAPPER = """#!/bin/sh
me="${{FAKE_NODE##*-}}"
export LD_LIBRARY_PATH={root}/lib LOCKSTEP_NCCL_DOUBLE="{even}"
[ ! -e {root}/without-$me ] || unset LD_LIBRARY_PATH
[ ! -e {root}/double-$me ] || LOCKSTEP_NCCL_DOUBLE="$(cat {root}/double-$me)"
echo "$me $(env | grep -c -e ^SLURM_ -e ^LOCKSTEP_TICKET)" >> {root}/told
if [ -e {root}/hang-$me ]; then sleep 1000 & echo "$$ $!" >> {root}/pids; wait; fi
exec {program}
"""


class HealthyPair:
    """A mixin: `pair()` makes two good nodes with a GPU each, of which both programs are asked; check_diagnostics() looks at what
    NCCL's own diagnostics have come to."""

    def test_gpus_and_nccl_of_a_good_pair_are_checked_within_ten_seconds(self):
        self.pair()
        began = time.monotonic()
        done = self.cli("nodes", "check", "--nodes", "2", "--gpus", "1", "--gpu-test", "--nccl-test", "--json", code=0)
        took = time.monotonic() - began
        gpu_tests.figure("lockstep nodes check --gpu-test --nccl-test of two nodes", took, "s")
        findings = [one for one in json.loads(done.stdout)["findings"] if one["check"] in ("gpu_test", "nccl_test")]
        # That two share a GPU, or a machine with other work, may make one slow for a moment.
        self.assertEqual([one for one in findings if one["severity"] == "fail" or "not installed" in one["found"] or
                          "not tested" in one["found"]], [], findings)
        self.assertLess(took, self.SECONDS)
        logs = "".join(path.read_text() for path in self.daemon.data.glob("runs/**/agent-*.log"))
        self.assertEqual(logs.count("test with NCCL"), 4, f"two nodes, two rounds\n{logs[-3000:]}")
        self.check_diagnostics(findings)


class NcclTest(HealthyPair, test_preflight.PreflightCase):
    SECONDS = 20  # on cores that do much else

    def pair(self):
        gpus = self.root / "fake-gpu-test"
        gpus.write_text(test_preflight_gpu_test.PROGRAM.format(python=harness.PYTHON, folder=str(self.root)))
        gpus.chmod(0o755)
        (self.root / "bad").write_text("n0 good\nn1 good\n")
        self.nodes(more=f"--gpu-test-program {gpus}", n0="diag=1 slow=10", n1="diag=1 slow=10")

    def check_diagnostics(self, findings):
        self.assertEqual([one["node"].rpartition("-")[2] for one in findings if "GPU inventory: model mismatch" in one["found"]],
                         ["n0"], findings)

    def setUp(self):
        if not DOUBLE.exists():
            self.skipTest("the double of NCCL is not built: no Gloo")
        super().setUp()

    def nodes(self, program=None, more="", **spoiled):
        """`spoiled`: what the double does on a node, as n1="slow=60"; None: neither library is there."""
        lib = self.root / "lib"
        lib.mkdir()
        for name in ("libnccl.so.2", "libcuda.so.1"):
            (lib / name).symlink_to(DOUBLE)
        for node, words in spoiled.items():
            if words is None:
                (self.root / f"without-{node}").touch()
            elif words == "hang":
                (self.root / f"hang-{node}").touch()
            else:
                (self.root / f"double-{node}").write_text(f"gpus=2 {words}")
        if program is None:
            program = self.root / "nccl-test"
            program.write_text(WRAPPER.format(root=self.root, program=PROGRAM, even=EVEN))
            program.chmod(0o755)
        tree = self.tree("node", {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  Sat\n",
                                  "dev/nvidia0": "", "dev/nvidia1": "", "dev/kmsg": ""})
        self.spoil("", before="FAKE_NODE=$7; export FAKE_NODE;",
                   arguments=f"--nccl-test-program {program} --preflight-root {tree} {more}")
        self.daemon.stop()
        self.daemon.arguments = (*self.daemon.arguments, "--local-gpus", "8")
        self.daemon.start()

    def check(self, code, nodes=4, gpus=1):
        done = self.cli("nodes", "check", "--nodes", str(nodes), "--gpus", str(gpus), "--nccl-test", "--json", code=code)
        return [(one["node"].rpartition("-")[2], one["severity"], one["found"], one["expected"])
                for one in self.judged(json.loads(done.stdout)["findings"])]

    def judged(self, findings):
        # That the double is slow for a moment is this machine's doing, and at most warned of.
        return [one for one in findings if one["check"] == "nccl_test" and
                not (one["severity"] == "warn" and "median" in one["expected"])]

    def named(self, found):
        return sorted((node, severity) for node, severity, *_ in found)

    def test_good_nodes_sum_with_two_others_each_and_the_job_trains(self):
        self.nodes()
        job = self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", preflight={"nccl_test": True, "pair_test": False},
            resources={"nodes": 4, "ranks_per_node": 1, "gpus_per_node": 1}))["id"]
        done = self.daemon.wait_state(job, harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        self.assertEqual(self.judged(done["attempts"][0].get("preflight", [])), [])
        told = sorted((self.root / "told").read_text().splitlines())
        self.assertEqual(told, [f"n{i} 0" for i in (0, 0, 1, 1, 2, 2, 3, 3)], "two rounds; nothing of the attempt")
        logs = "".join(path.read_text() for path in self.daemon.data.glob("runs/**/agent-*.log"))
        self.assertEqual(logs.count("test with NCCL"), 8, logs[-3000:])
        self.assertEqual(logs.count("2.32.3"), 8)

    def test_a_healthy_pair_takes_less_than_ten_seconds(self):
        self.nodes()
        began = time.monotonic()
        self.check(code=0, nodes=2, gpus=2)
        self.assertLess(time.monotonic() - began, 2 * 10, "two rounds")

    def test_every_gpu_of_both_nodes_is_a_rank(self):
        self.nodes(n2=SLOW)
        found = self.check(code=1, gpus=2)
        self.assertEqual(self.named(found), [("n2", "fail")], found)
        self.assertIn(" on 4 GPUs, then with ", found[0][2])

    def test_the_slow_node_is_told_from_its_partners(self):
        self.nodes(n2=SLOW)
        found = self.check(code=1)
        self.assertEqual(self.named(found), [("n2", "fail")], found)
        self.assertRegex(found[0][2], r"^NCCL's all-reduce: with \S+-n\d [0-9.]+ GB/s and \d+ µs on 2 GPUs, then with ")
        self.assertRegex(found[0][3], r"^at least 50 % of the median of 4 groups of 2 GPUs here, [0-9.]+ GB/s$")

    def test_a_spare_takes_the_place_of_a_node_that_sums_wrongly(self):
        self.nodes(n1="slow=10 wrong=7")
        job = self.daemon.submit(harness.command_job(
            "meet", "/bin/echo", "hi", preflight={"nccl_test": True},
            resources={"nodes": 3, "ranks_per_node": 1, "gpus_per_node": 1, "spares": 1}))["id"]
        done = self.daemon.wait_state(job, harness.FINAL, 90)
        self.assertEqual(done["state"], "succeeded", done)
        found = self.judged(done["attempts"][0]["preflight"])
        self.assertEqual([(one["node"].rpartition("-")[2], one["severity"]) for one in found], [("n1", "fail")])
        self.assertIn("1 wrong values in its sums", found[0]["found"])
        self.assertTrue(done["attempts"][0]["lost_nodes"][0].endswith("-n1"), done["attempts"])

    def test_an_error_of_nccls_is_told_in_its_words_with_the_gpu(self):
        self.nodes(n3="error:0:4:2 error:1:4:2")
        found = self.check(code=1)
        self.assertEqual(self.named(found), [("n3", "fail")], found)
        self.assertIn("unhandled system error (said by the NCCL double)", found[0][2])
        self.assertIn("GPU 0 of this node", found[0][2])

    def test_one_that_is_killed_in_the_middle_is_named_and_not_its_partners(self):
        self.nodes(n0="die=4")
        found = self.check(code=1)
        self.assertEqual(self.named(found), [("n0", "fail")], found)
        self.assertIn("signal 9, in: NCCL's first all-reduce", found[0][2])

    def test_an_operation_that_never_ends_is_given_up_and_the_node_found(self):
        self.nodes(n1="stuck:0:2 stuck:1:2")
        began = time.monotonic()
        found = self.check(code=1)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(self.named(found), [("n1", "fail")], found)
        self.assertIn("is not done after 8 s", found[0][2])

    def test_a_program_that_hangs_is_ended_with_what_it_started(self):
        self.nodes(n1="hang")
        found = self.check(code=1, nodes=3)
        self.assertEqual(self.named(found), [("n1", "fail")], found)
        self.assertIn("not over within 30 s", found[0][2])
        pids = [int(pid) for pid in (self.root / "pids").read_text().split()]
        harness.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 20, "they are gone")

    def test_another_version_is_named_before_nccl_waits_for_it(self):
        self.nodes(n2="version=22005")
        found = self.check(code=1)
        self.assertEqual(self.named(found), [("n2", "fail")], found)
        self.assertIn("NCCL is 2.20.5 here and 2.32.3 on ", found[0][2])

    def test_of_two_nodes_both_are_named(self):
        self.nodes(n1="version=22005")
        found = self.check(code=1, nodes=2)
        self.assertEqual(self.named(found), [("n0", "fail"), ("n1", "fail")], found)
        self.assertIn("that it is not the other node, only a third one would show", found[0][2])

    def test_a_library_that_does_not_load_fails_the_node_that_lacks_it(self):
        self.nodes(n1=None)
        found = self.check(code=1)
        self.assertEqual(self.named(found), [("n1", "fail")], found)
        self.assertIn("cannot load libcuda.so.1", found[0][2])

    def test_where_no_node_has_the_libraries_it_is_said_and_nothing_fails(self):
        self.nodes(n0=None, n1=None)
        found = self.check(code=0, nodes=2)
        self.assertEqual(self.named(found), [("n0", "warn"), ("n1", "warn")], found)
        self.assertIn("LD_LIBRARY_PATH", found[0][3])

    def test_what_nccls_diagnostics_find_is_warned_of(self):
        self.nodes(n0="diag=1 slow=10")
        found = self.check(code=0, nodes=2)
        self.assertEqual(self.named(found), [("n0", "warn")], found)
        self.assertRegex(found[0][2], r"^NCCL warns \(ranks from 1 on are of \S+-n1\): GPU inventory: model mismatch across 2 ranks, "
                                      r"rank\(s\) 1 differ from rank 0 \(NVIDIA Double\)$")

    def test_without_the_program_it_is_said(self):
        self.nodes(program=self.root / "nothing")
        found = self.check(code=0, nodes=2)
        self.assertEqual([one[:3] for one in found], [
            (node, "warn", "lockstep-nccl-test is not installed: NCCL was not tested") for node in ("n0", "n1")])

    def test_it_needs_gpus_and_a_preflight(self):
        refused = self.cli("nodes", "check", "--nccl-test", code=2)
        self.assertIn("--nccl-test needs --gpus N", refused.stderr)
        for preflight, gpus in (({"nccl_test": True}, 0), ({"nccl_test": True, "mode": "off"}, 1)):
            spec = harness.command_job("meet", "/bin/true", preflight=preflight,
                                       resources={"nodes": 1, "ranks_per_node": 1, "gpus_per_node": gpus})
            self.daemon.stop()
            self.daemon.arguments = ("--local-gpus", "8")
            self.daemon.start()
            self.assert_problem(self.daemon.api("POST", "/v1/jobs", spec), 400, "/preflight/nccl_test", "")


# A node of its own for each of the machine's GPUs; where there is one, both nodes have it. lockstep-gpu-test takes nine tenths of
# a GPU's free memory, and its rates are judged: two on one GPU take turns. Those of lockstep-nccl-test wait for each other.
REAL = """#!/bin/sh
node="${{FAKE_NODE##*-n}}"
export CUDA_VISIBLE_DEVICES=$((node % {gpus})) NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4
export LD_LIBRARY_PATH={libraries}
{run}
"""
RUNS = {"gpu": "exec flock {root}/gpu-$CUDA_VISIBLE_DEVICES.lock {program}",
        # What NCCL prints is kept, for the test to read.
        "nccl": "{program} 2> {root}/said-$node-$$; code=$?; cat {root}/said-$node-$$ >&2; exit $code"}


def real_program(root, name, gpus, libraries="", program=None):
    """What a node of OnARealGpu starts as lockstep-{name}-test."""
    path = root / f"{name}-test"
    run = RUNS[name].format(root=root, program=program or harness.BIN / f"lockstep-{name}-test")
    path.write_text(REAL.format(gpus=gpus, libraries=libraries, run=run))
    path.chmod(0o755)
    return path


class Turns(unittest.TestCase):
    """Two tests of one GPU ran at once: out of memory, or each at half the other's rate."""

    def is_taken_by(self, name, gpus, node):
        """Of the GPUs 0 and 1, those that nobody else tests while this node's program runs."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            path = real_program(root, name, gpus, program="cat")
            process = subprocess.Popen([path], env={**os.environ, "FAKE_NODE": f"host-n{node}"}, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
            with process:
                process.stdin.write("it runs\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "it runs\n")
                return [gpu for gpu in (0, 1) if subprocess.run(["flock", "-n", root / f"gpu-{gpu}.lock", "true"], check=False).returncode]

    def test_nodes_with_the_same_gpu_test_it_one_after_the_other(self):
        self.assertEqual([self.is_taken_by("gpu", 1, node) for node in (0, 1)], [[0], [0]])

    def test_nodes_with_gpus_of_their_own_do_so_at_once_and_nccl_always_does(self):
        self.assertEqual([self.is_taken_by("gpu", 2, node) for node in (0, 1)], [[0], [1]])
        self.assertEqual(self.is_taken_by("nccl", 1, 0), [])


@gpu_tests.needs_gpu
class OnARealGpu(HealthyPair, test_preflight.PreflightCase):
    SECONDS = 10

    def setUp(self):
        why = gpu_tests.no_gpu()
        self.library = test_nccl.real_nccl()
        if not why and self.library is None:
            why = "a GPU, but no libnccl.so.2: deploy/install-deps --cuda, or LOCKSTEP_NCCL_LIBRARY"
        self.gpus = 0 if why else gpu_tests.gpus()
        if self.gpus == 1:
            why = gpu_tests.no_sharing(self.library)
            self.SECONDS = 2 * 10  # one after the other
        if why:
            self.skipTest(why)
        super().setUp()

    def pair(self):
        libraries = os.environ.get("LD_LIBRARY_PATH", "")
        if os.path.isabs(str(self.library)):
            libraries = f"{pathlib.Path(self.library).parent}:{libraries}"
        programs = {name: real_program(self.root, name, self.gpus, libraries) for name in ("gpu", "nccl")}
        self.spoil("", before="FAKE_NODE=$7; export FAKE_NODE;",
                   arguments=f"--nccl-test-program {programs['nccl']} --gpu-test-program {programs['gpu']}")
        self.daemon.stop()
        self.daemon.arguments = (*self.daemon.arguments, "--local-gpus", "2")
        self.daemon.start()

    def check_diagnostics(self, findings):
        lines = [line for path in sorted(self.root.glob("said-*")) for line in path.read_text(errors="replace").splitlines()
                 if "NCCL DIAG" in line]
        print(*lines, sep="\n")
        version = gpu_tests.nccl_version(self.library)
        if version < (2, 31):
            print(f"NOT LOOKED AT: NCCL's diagnostics: they are there from 2.31 on, and this is {version}")
            return
        self.assertTrue(lines, "NCCL's diagnostics have printed nothing")
        # What they find is warned of, but for what the test itself sets.
        warned = any("NCCL warns" in one["found"] for one in findings)
        found = [line for line in lines if "NCCL DIAG [INFO]" in line and "NCCL_RAS_ADDR" not in line]
        self.assertEqual(warned, bool(found), (findings, found))


if __name__ == "__main__":
    harness.main()
