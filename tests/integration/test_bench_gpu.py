"""tests/bench/run gpu where there is no GPU: it says so for every figure, and its rehearsal, on the CPU and the double of NCCL, runs to
its end: without torch here, so that it is cheap. `tests/bench/run --rehearse gpu` by hand has the peers as well."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import gpu_tests
import harness

BENCH = harness.SOURCE / "tests" / "bench"
for folder in (BENCH, BENCH / "trainer", BENCH / "gpu"):
    sys.path.insert(0, str(folder))

import bandwidth  # noqa: E402
import figures  # noqa: E402
import killed  # noqa: E402
import meeting  # noqa: E402
import nvml  # noqa: E402
import overhead  # noqa: E402
import setup  # noqa: E402
import trainer  # noqa: E402

# What nccl-tests 2.17 prints of one size.
PERF = """#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
   134217728      33554432     float     sum      -1   612.30  219.20  328.80       0   611.05  219.65  329.47       0
# Avg bus bandwidth    : 329.135
"""


class Words(unittest.TestCase):
    def test_the_bus_bandwidth_is_that_of_nccl_tests(self):
        self.assertEqual(bandwidth.parse_perf(PERF), 328.80)
        self.assertAlmostEqual(bandwidth.bus(4, 134217728, 612.30e-6), 328.80, places=1)
        with self.assertRaises(RuntimeError):
            bandwidth.parse_perf("Invalid number of GPUs: 4 requested but only 1 were found.")

    def test_torchrun_says_when_it_knew(self):
        killed_at = time.mktime((2026, 11, 29, 9, 13, 24, 0, 0, -1)) + 0.1
        log = ("W1129 09:13:20.000000 77 torch/x.py:9] Sending process 8 closing signal SIGTERM\n"
               "W1129 09:13:24.223000 77 torch/distributed/elastic/multiprocessing/api.py:1000] Sending process 28 closing signal SIGTERM\n")
        self.assertAlmostEqual(killed.torchrun_time(log, killed_at) - killed_at, 0.123, places=3)
        self.assertIsNone(killed.torchrun_time("killed\n", killed_at))

    def test_a_launcher_that_gives_up_has_no_time(self):
        with tempfile.TemporaryDirectory() as folder:
            victim = subprocess.Popen(["sleep", "600"])
            self.addCleanup(victim.wait)
            self.addCleanup(victim.kill)
            folder = pathlib.Path(folder)
            (folder / killed.CHECKPOINT).touch()
            for rank in range(killed.RANKS):
                (folder / f"0-{rank}.json").write_text(json.dumps({"round": 0, "rank": rank, "pid": victim.pid}))
            found = unittest.mock.Mock(within=lambda seconds: 5)
            with self.assertRaises(killed.GaveUp):
                killed.kill_one(found, folder, lambda: True, lambda _: None, lambda: True)
            found.within = lambda seconds: 0.1
            with self.assertRaises(killed.TooLate):
                killed.kill_one(found, folder, lambda: True, lambda _: None, lambda: False)

    def test_meeting_is_counted_from_the_last_that_was_ready(self):
        texts = ["moments: began 10.0 joined 14.0 summed 14.5", "x\nmoments: began 12.0 joined 13.0 summed 15.0\n"]
        self.assertEqual(meeting.spans(texts), {"joined": 2.0, "summed": 3.0})
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            meeting.spans([texts[0], "out of memory"])


class Noise(unittest.TestCase):
    """What NCCL's telemetry adds, where a job's own steps differ by more than is asked for: three rounds were all, so on one GPU
    that four ranks share nothing was ever decided."""

    def rounds(self, steps, limit):
        """({figure: its values}, {figure: why there is none}, how many rounds there were), where time is up after `limit` rounds.
        `steps`: a step's seconds, of this round and whether it is of the second job without telemetry."""
        ran, added, skipped = [], {}, {}

        def step(_found, _service, environment):
            ran.append(environment)
            index, job = divmod(len(ran) - 1, 4)  # off, RAS, off again, Inspector
            self.assertEqual(environment is overhead.OFF, job in (0, 2))
            seconds = steps(index, job == 2)
            if isinstance(seconds, Exception) and job == 3:
                raise seconds
            return 1 if isinstance(seconds, Exception) else seconds

        found = unittest.mock.Mock(rounds=3, rehearse=False, left=lambda: 3600 if len(ran) < 4 * limit else 100)
        shown = unittest.mock.Mock(add=lambda what, values, unit: added.update({what: values}),
                                   skip=lambda what, why: skipped.update({what: why}))
        with unittest.mock.patch.object(overhead, "inspector", return_value="/some/plugin.so"):
            overhead.telemetry(shown, found, None, step, "the native trainer", True)
        return added, skipped, len(ran) // 4

    def test_there_are_rounds_until_it_is_less_than_what_is_asked_for(self):
        self.assertEqual(overhead.TARGET, 0.5)

        def wavering(index, again):
            return 1 + (0.01 * (-1) ** index if again else 0)
        added, skipped, rounds = self.rounds(wavering, 100)
        self.assertEqual(skipped, {})
        self.assertEqual((len(added[overhead.RAS]), len(added[overhead.INSPECTOR])), (rounds, rounds))
        differences = [100 * (-1) ** index * 0.01 / (1 + 0.005 * (-1) ** index) for index in range(rounds)]
        self.assertLessEqual(overhead.noise_of(differences), overhead.TARGET)
        self.assertGreater(overhead.noise_of(differences[:-1]), overhead.TARGET, "and not one more")

    def test_a_quiet_machine_has_the_usual_ones(self):
        added, skipped, rounds = self.rounds(lambda index, again: 1 + 0.0001 * again, 100)
        self.assertEqual((skipped, rounds), ({}, 3))

    def test_where_time_ends_before_nothing_is_decided_and_the_noise_is_named(self):
        for limit in (2, 5):
            added, skipped, rounds = self.rounds(lambda index, again: 1 + (0.02 * (-1) ** index if again else 0), limit)
            self.assertEqual(rounds, max(limit, 3))
            self.assertEqual(set(skipped), {overhead.RAS, overhead.INSPECTOR})
            self.assertRegex(skipped[overhead.RAS], rf"^undecided after {rounds} rounds: the noise is [1-9][0-9.]* %, more than the 0.5 % asked for$")
            self.assertNotIn(overhead.RAS, added)

    def test_a_job_that_fails_takes_no_earlier_round_with_it(self):
        added, skipped, _ = self.rounds(lambda index, _: RuntimeError("a rank ended") if index == 3 else 1 + 0.01 * (-1) ** index, 100)
        self.assertEqual(skipped, {})
        self.assertEqual((len(added[overhead.RAS]), len(added[overhead.INSPECTOR])), (3, 3))

    def test_an_inspector_that_does_nothing_takes_no_figure_of_ras_with_it(self):
        ran, added, skipped = [], {}, {}

        def step(_found, _service, environment):
            ran.append(environment)
            if environment["LOCKSTEP_NCCL_INSPECTOR"] == "/some/plugin.so":
                raise setup.NotRun("no bandwidth")
            return 1
        found = unittest.mock.Mock(rounds=3, rehearse=False, left=lambda: 3600)
        shown = unittest.mock.Mock(add=lambda what, values, unit: added.update({what: values}),
                                   skip=lambda what, why: skipped.update({what: why}))
        with unittest.mock.patch.object(overhead, "inspector", return_value="/some/plugin.so"):
            overhead.telemetry(shown, found, None, step, "the native trainer", True)
        self.assertEqual((len(added[overhead.RAS]), skipped), (3, {overhead.INSPECTOR: "no bandwidth"}))
        self.assertEqual(len(ran), 4 + 2 * 3)

    def test_one_round_decides_nothing(self):
        self.assertEqual(overhead.noise_of([0.0]), float("inf"))

    def test_rounds_make_no_noise_of_what_differs_each_time(self):
        _, skipped, rounds = self.rounds(lambda index, again: 1 + 0.01 * again, 40)
        self.assertEqual(rounds, 40)
        self.assertRegex(skipped[overhead.RAS], "the noise is 1.00 %")


class Service:
    """Of a job with these series."""

    def __init__(self, *metrics):
        self.metrics = metrics

    def series(self, _job, metric, **_more):
        return {0: [[1, 1, 1, 1]] if metric in self.metrics else []}


class Telemetry(unittest.TestCase):
    """Whether a job had what its setting asked for: a plugin that NCCL did not load cost nothing, and that was the figure."""
    RAS = {"LOCKSTEP_NCCL_INSPECTOR": "off"}
    INSPECTOR = {"LOCKSTEP_NCCL_INSPECTOR": "/some/plugin.so"}

    def test_what_was_not_seen_is_no_figure(self):
        for environment, metrics, words in ((self.RAS, (), "RAS gave the agent nothing"),
                                            (self.INSPECTOR, ("nccl_collectives",), "the Inspector gave the agent no bandwidth"),
                                            (self.INSPECTOR, ("nccl_bus_bandwidth_all_reduce_one",), "RAS gave the agent nothing")):
            with self.assertRaisesRegex(setup.NotRun, words):
                overhead.require_telemetry(Service(*metrics), "ls-1", environment)

    def test_what_was_seen_is(self):
        for environment, metrics in ((overhead.OFF, ()), (self.RAS, ("nccl_collectives",)),
                                     (self.INSPECTOR, ("nccl_collectives", "nccl_bus_bandwidth_all_reduce_many"))):
            overhead.require_telemetry(Service(*metrics), "ls-1", environment)


class OnAMachineWithAGpu(unittest.TestCase):
    """What is only gone through beside a GPU ended with a NameError there."""

    def found(self, **more):
        options = unittest.mock.Mock(bin=harness.BIN, rehearse=False, rounds=1, gpu_seconds=1)
        with unittest.mock.patch.object(gpu_tests, "no_gpu", return_value=""), \
                unittest.mock.patch.object(gpu_tests, "gpus", return_value=1), \
                unittest.mock.patch.object(setup, "torch_of", return_value={}), \
                unittest.mock.patch.dict(os.environ, more):
            return setup.find(options)

    def test_nccl_is_looked_for_and_the_named_one_is_taken(self):
        double = harness.BIN.parent / "tests" / "nccl_double" / "libnccl.so.2"
        if not double.exists():
            self.skipTest("the double is not built: no Gloo")
        self.assertEqual(self.found(LOCKSTEP_NCCL_LIBRARY=str(double)).nccl, str(double))
        self.assertEqual(gpu_tests.nccl_version(double), (2, 32, 3))
        self.assertEqual(gpu_tests.no_sharing(str(double)), "")

    def test_a_part_that_fails_in_whatever_way_takes_no_other_figures_with_it(self):
        skipped = {}
        table = unittest.mock.Mock(skip=lambda what, word, why, target: skipped.update({what: why}))
        parts = {name: unittest.mock.Mock(FIGURES=((name, "≤", 1),), SECONDS=1, measure=unittest.mock.Mock(side_effect=problem))
                 for name, problem in (("first", TypeError("'NoneType' object")), ("second", RuntimeError("no NCCL")))}
        options = unittest.mock.Mock(gpu_parts="first,second")
        found = unittest.mock.Mock(no_gpu="", rehearse=False, torch={}, gpus=1, nccl="")
        with unittest.mock.patch.object(figures, "PARTS", parts), unittest.mock.patch.object(setup, "find", return_value=found):
            figures.measure(table, options, None)
        self.assertEqual(skipped, {"gpu: first": "'NoneType' object", "gpu: second": "no NCCL"})

    def test_without_any_that_is_all_that_is_said(self):
        with unittest.mock.patch.object(gpu_tests, "nccl_version", return_value=()):
            self.assertEqual(self.found().nccl, "")
            self.assertEqual(gpu_tests.no_sharing("/some/libnccl.so.2"), "")

    def test_that_of_torch_is_found_and_the_newest_is_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            beside = pathlib.Path(folder) / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
            beside.parent.mkdir(parents=True)
            beside.touch()
            for loads, wanted in (((), beside), ((2, 28, 9), "libnccl.so.2"), ((2, 28, 8), beside)):
                versions = {str(beside): (2, 28, 9), "libnccl.so.2": loads}
                with unittest.mock.patch.object(gpu_tests, "torch_folder", return_value=pathlib.Path(folder) / "torch"), \
                        unittest.mock.patch.object(gpu_tests, "nccl_version", lambda path, known=versions: known.get(str(path), ())):
                    self.assertEqual(self.found(LOCKSTEP_NCCL_LIBRARY="").nccl, str(wanted))
                    self.assertIn("NCCL 2.28.9", gpu_tests.no_sharing(str(beside)))


class Bench(unittest.TestCase):
    def run_bench(self, *arguments, **more):
        """(rows by name, notes, what it printed)."""
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            rows = pathlib.Path(folder) / "rows.json"
            environment = {**os.environ, "LOCKSTEP_FRAMEWORKS": folder, **more}
            environment.pop("LOCKSTEP_TORCH_PYTHON", None)
            done = subprocess.run([sys.executable, "-B", BENCH / "run", "--bin", harness.BIN, "--rounds", "1", "--json", rows, *arguments, "gpu"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            document = json.loads(rows.read_text())
        return {row["what"]: row for row in document["rows"]}, document["notes"], done.stdout

    def test_without_a_gpu_every_figure_says_so_and_nothing_is_claimed(self):
        why = gpu_tests.no_gpu()
        if not why:
            self.skipTest("this machine has a GPU")
        rows, notes, output = self.run_bench()
        expected = {f"gpu: {figure}" for part in figures.PARTS.values() for figure, *_ in part.FIGURES}
        self.assertEqual(set(rows), expected, output)
        self.assertEqual({(row["not_run"], row["why"]) for row in rows.values()}, {("SKIPPED", why)})
        self.assertTrue(any("compiled" in note for note in notes), output)
        self.assertIn("nothing is claimed", notes[-1])

    def test_the_rehearsal_goes_through_and_judges_nothing(self):
        for program in (harness.BIN / "lockstep-train", harness.BIN.parent / "tests" / "nccl_rank"):
            if not program.exists():
                self.skipTest(f"{program} is not built")
        with tempfile.TemporaryDirectory(prefix="lockstep-test-") as folder:
            # A stand-in for nccl-tests and mpirun: how they are called, and that what they say is read.
            perf = pathlib.Path(folder) / "all_reduce_perf"
            perf.write_text(f"#!/bin/sh\ncat <<'END'\n{PERF}END\n")
            (pathlib.Path(folder) / "mpirun").write_text('#!/bin/sh\n[ "$4" = 2 ] && [ "$NCCL_TESTS_DEVICE" = 0 ] && shift 4 && exec "$@"\n')
            for path in pathlib.Path(folder).iterdir():
                path.chmod(0o755)
            rows, notes, output = self.run_bench("--rehearse", "--gpu-parts", "init,bandwidth,kill,overhead", "--gpu-seconds", "250",
                                                 LOCKSTEP_NCCL_TESTS=str(perf), PATH=f"{folder}:{os.environ['PATH']}")
        before = "gpu REHEARSAL on doubles: "
        self.assertNotIn("MISSED", output)
        self.assertNotIn(" ok", output)
        self.assertIn("nothing is claimed", notes[0])
        for figure in (meeting.RATIO, bandwidth.TORCH, killed.RATIO, killed.COLD, killed.AGAIN + killed.WARM, overhead.SCRIPT):
            self.assertRegex(rows[before + figure].get("why", ""), "no torch 2", f"{figure}\n{output}")
        again = rows[before + killed.AGAIN + killed.NATIVE]
        self.assertEqual(again["target"], "≤ 2 not judged")
        parts = [rows[f"{before}{span}: {killed.NATIVE}"]["median"] for span in killed.SPANS]
        self.assertAlmostEqual(sum(parts), again["median"], places=3)
        self.assertGreater(rows[f"{before}{meeting.RANKS} ranks have met and summed: ours (DOUBLE of NCCL)"]["median"], 0)
        self.assertGreater(rows[before + bandwidth.RATIO]["median"], 0)
        self.assertGreater(rows[before + overhead.NATIVE]["median"], 0)
        self.assertRegex(rows[before + overhead.INSPECTOR]["why"], "no Inspector plugin")
        self.assertIn(f"{before}{overhead.RAS}, all-reduces alone (DOUBLE of NCCL)", rows, output)

    def test_what_no_time_is_left_for_is_not_run(self):
        rows, _, output = self.run_bench("--rehearse", "--gpu-seconds", "1")
        self.assertEqual({row["why"] for row in rows.values()}, {"out of time (--gpu-seconds)"}, output)
        # What is cut short is the end: the trainer, which takes longest, was always out of time there.
        named = [name.removeprefix("gpu REHEARSAL on doubles: ") for name in rows]
        self.assertEqual(named[:1 + len(trainer.FIGURES)], [nvml.LOOK, *(name for name, *_ in trainer.FIGURES)])

    def test_a_part_that_does_not_exist_is_refused(self):
        done = subprocess.run([sys.executable, "-B", BENCH / "run", "--gpu-parts", "init,nonsense", "gpu"], capture_output=True, text=True,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no part nonsense", done.stderr)


if __name__ == "__main__":
    harness.main()
