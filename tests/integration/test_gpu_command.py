"""`tests/gpu`, the one command for a machine with a GPU, where there is none: every test that skips for want of one has
ctest's label `gpu`, and the command fails and names each. With the real ctest and the build folder that runs this."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import gpu_tests
import harness

TESTS = harness.SOURCE / "tests"
BUILD = harness.BIN.parent
# NCCL itself is there without a GPU, and so may its Inspector be.
ALSO_WITHOUT = re.compile(r"NcclItself\.|NcclIds\.|gpu\.nccl_inspector WithThePlugin")
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}  # so that it is the same where there is a GPU


def ctest_tests():
    """All tests and their properties, of the real ctest."""
    said = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    return json.loads(said)["tests"]


def labels():
    """{test: its labels}."""
    return {test["name"]: next((one["value"] for one in test.get("properties", ()) if one["name"] == "LABELS"), [])
            for test in ctest_tests()}


def loaded(name, path):
    """A program without an ending, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module  # for its dataclasses
    loader.exec_module(module)
    return module


GPU = loaded("gpu_command", TESTS / "gpu")


def listed(*arguments):
    """The tests that --list names."""
    return [line.strip() for line in command("--list", *arguments).stdout.splitlines() if line.startswith("    ")]


def command(*arguments):
    return subprocess.run([sys.executable, "-B", TESTS / "gpu", *arguments], capture_output=True, text=True, check=False,
                          timeout=600, env={**os.environ, **HIDDEN})


class Labels(unittest.TestCase):
    def test_every_test_that_skips_for_want_of_a_gpu_has_the_label(self):
        known, skips = labels(), 0
        for path in sorted(TESTS.rglob("*_test.cpp")):
            for line, suite, name, words in gpu_tests.skips_of_cpp(path):
                skips += 1
                where = f"{path.relative_to(TESTS)}:{line}: {suite}.{name} skips: {words}"
                self.assertIn((suite, name), list(gpu_tests.marked_cpp(path)), f"{where}: GPU of its lockstep_test() has not its name")
                found = [test for test in known if re.fullmatch(rf"(?:\w+/)?{suite}\.{name}(?:/.*)?", test)]
                self.assertEqual([test for test in found if "gpu" not in known[test]], [], where)
                if (BUILD / "tests" / "test_trainer").exists():
                    self.assertTrue(found or suite == "NcclItself", where)
        for path in sorted(TESTS.rglob("*.py")):
            if path == pathlib.Path(__file__).resolve() or path.parent.name == "support":
                continue
            for line, holder, words, marked in gpu_tests.skips_of_python(path):
                skips += 1
                where = f"{path.relative_to(TESTS)}:{line}: {holder} skips: {words}"
                self.assertTrue(marked, f"{where}: it is not marked with needs_gpu")
                self.assertEqual(known.get(f"gpu.{path.stem.removeprefix('test_')}"), ["gpu"], where)
        self.assertGreater(skips, 12, "the words of skips are no longer found")


class Skipped(unittest.TestCase):
    """A program of which no test was run was shown as passed."""

    def ended(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "some_tests.py")
            path.write_text(f"import unittest\nimport gpu_tests\n{tests}\ngpu_tests.main()\n", encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", path], capture_output=True, text=True, check=False, timeout=60,
                                  env={**os.environ, "PYTHONPATH": str(TESTS / "support"), "LOCKSTEP_TEST_GPU": "none"})
        self.assertEqual("SKIPPED: no test was run" in done.stderr, done.returncode == 77, done.stderr)
        return done.returncode

    def test_a_program_whose_tests_were_all_skipped_says_so(self):
        skipped = "@unittest.skip('not built')\nclass A(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): pass\n"
        self.assertEqual(self.ended(skipped), 77)
        refuses = ("class B(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): raise unittest.SkipTest('no root')\n"
                   "    def test_c(self): pass\n")
        self.assertEqual(self.ended(refuses), 77)
        self.assertEqual(self.ended(skipped + refuses), 77)

    def test_one_of_which_a_test_was_run_does_not(self):
        skipped = "class A(unittest.TestCase):\n    @unittest.skip('not built')\n    def test_a(self): pass\n"
        self.assertEqual(self.ended(skipped + "    def test_b(self): pass\n"), 0)
        self.assertEqual(self.ended(skipped + "    def test_b(self): self.fail()\n"), 1)
        self.assertEqual(self.ended("class A(unittest.TestCase):\n    def test_a(self):\n        for i in range(2):\n"
                                    "            with self.subTest(i=i):\n                if i: self.skipTest('one of them')\n"), 0)

    def test_ctest_shows_it_of_every_program_of_real_processes(self):
        said = [test for test in ctest_tests() if test["name"].startswith(("integration.", "prometheus.", "gpu.", "slurm."))]
        self.assertGreater(len(said), 80)
        self.assertEqual([test["name"] for test in said
                          if not any(one == {"name": "SKIP_RETURN_CODE", "value": 77} for one in test["properties"])], [])


class Table(GPU.Table):
    """That says when it is told of something."""

    def __init__(self, told=lambda: None):
        super().__init__()
        self.told = told

    def add(self, *given):
        super().add(*given)
        self.told()


class Quiet(unittest.TestCase):
    """A folder, and what is printed meanwhile is not shown."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        printed = contextlib.redirect_stdout(io.StringIO())
        self.addCleanup(printed.__exit__, None, None, None)
        printed.__enter__()


class Parts(Quiet):
    """With the real ctest and programs that stand for tests."""

    def run_part(self, name, body, table, first=False, left=GPU.Left()):
        """Rows of `tests/gpu` for a part, where each ctest of it is this program."""
        part = next(part for part in GPU.PARTS if part.name == name)
        script = self.folder / "test.py"
        script.write_text(f"import os, pathlib, sys, time\nimport gpu_tests\nhere = pathlib.Path({str(self.folder)!r})\n{body}")
        tests = "".join(f'add_test("{one}" "{sys.executable}" "-B" "{script}")\n'
                        f'set_tests_properties("{one}" PROPERTIES LABELS "gpu" SKIP_RETURN_CODE 77)\n'
                        for one in {one for one, _ in GPU.tests_of(part)})
        (self.folder / "CTestTestfile.cmake").write_text(tests)
        GPU.run_tests(table, self.folder, {**os.environ, "PYTHONPATH": str(TESTS / "support")}, part, first, left)
        return {what: (verdict, reason) for what, verdict, reason, _ in table.rows}

    def test_a_verdict_is_told_while_the_tests_run(self):
        table = Table(lambda: (self.folder / "told").touch())
        rows = self.run_part("gpu.gpu_values", """
gpu_tests.row("One.test_a", "seen")
until = time.monotonic() + 60
while not (here / "told").exists() and time.monotonic() < until:
    time.sleep(0.01)
gpu_tests.row("One.test_b", "seen" if (here / "told").exists() else "failed")
""", table)
        self.assertEqual([rows[f"gpu.gpu_values One.test_{one}"][0] for one in "ab"], ["seen", "seen"])
        # What the sources have and the program does not.
        self.assertEqual(rows["gpu.gpu_values WithARealGpu.test_every_value_of_every_gpu_is_nvidia_smis_idle_and_at_work"], ("NOT RUN", "its program ended before it"))

    def test_of_a_first_run_the_program_is_asked_for_its_most_telling_tests(self):
        rows = self.run_part("gpu.native_gpu", "for name in os.environ[gpu_tests.ONLY].split(): gpu_tests.row(name, 'seen')\n",
                             Table(), first=True)
        self.assertEqual(set(rows), {line for line in listed("--first") if line.startswith("gpu.native_gpu ")})
        self.assertEqual({verdict for verdict, _ in rows.values()}, {"seen"})

    def test_those_tests_are_all_that_the_program_runs(self):
        script = self.folder / "tests.py"
        script.write_text("import unittest\nimport gpu_tests\n@gpu_tests.needs_gpu\nclass A(unittest.TestCase):\n"
                          "    def test_a(self): pass\n    def test_b(self): pass\ngpu_tests.main()\n")
        for only, wanted in (("A.test_b", ["A.test_b"]), ("", ["A.test_a", "A.test_b"])):
            done = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True, check=False, timeout=60, env={
                **os.environ, "PYTHONPATH": str(TESTS / "support"), "LOCKSTEP_TEST_GPU": "only", gpu_tests.ONLY: only})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([row["name"] for row in GPU.rows_of(done.stdout)], wanted)

    def test_what_takes_longer_than_is_left_is_not_begun(self):
        left = unittest.mock.Mock(why_not=lambda seconds: f"{seconds} s", seconds=lambda: 1)
        rows = self.run_part("gpu_test.every_gpu", "(here / 'begun').touch()\n", Table(), left=left)
        self.assertEqual(rows, {"gpu_test.every_gpu": ("NOT RUN", "10 s")})
        self.assertFalse((self.folder / "begun").exists())

    def test_what_is_not_over_in_time_is_ended(self):
        left = unittest.mock.Mock(why_not=lambda seconds: "", seconds=lambda: 1)
        rows = self.run_part("gpu_test.every_gpu", "time.sleep(600)\n", Table(), left=left)
        self.assertEqual(rows["gpu_test.every_gpu"][0], "failed", rows)

    def test_figures_that_there_are_none_of_have_their_reason_once(self):
        """The command ended with a KeyError before its table, and listed them twice."""
        bench = loaded("bench_run", TESTS / "bench" / "run").Table()
        bench.add("gpu: fast", [2.0], "×", 1.0)
        bench.add("gpu: slow", [0.5], "×", 1.0)
        bench.skip("gpu: none", "NOT RUN", "no torch 2", "≥ 1.0")
        bench.write(self.folder / "rows.json")
        table = GPU.Table()
        GPU.read_figures(table, json.loads((self.folder / "rows.json").read_text())["rows"])
        self.assertEqual([row[:3] for row in table.rows], [
            ("figure: gpu: fast", "seen: 2 ×", "≥ 1 ok"), ("figure: gpu: slow", "failed", "0.5 ×, ≥ 1 MISSED"),
            ("figure: gpu: none", "NOT RUN", "no torch 2")])

    def test_the_figures_have_an_hour_where_nothing_limits(self):
        """They had 570 s, of which the trainer's, which take six to nine minutes, got none."""
        commands = []

        def ran(command, **more):
            commands.append([*map(str, command), more["timeout"]])
            return subprocess.CompletedProcess(command, 0, "")

        for left in (GPU.Left(), GPU.Left(100)):
            with unittest.mock.patch.object(GPU.subprocess, "run", ran):
                GPU.run_figures(GPU.Table(), self.folder, {}, left)
        given = [(int(command[command.index("--gpu-seconds") + 1]), command[-1]) for command in commands]
        self.assertEqual(given[0][0], 3600)
        self.assertLessEqual(given[1][0], 100)
        for seconds, patience in given:
            self.assertGreater(patience, seconds, "it ends itself, and has its rows then")
        bench, found = loaded("bench_run", TESTS / "bench" / "run"), []
        with unittest.mock.patch.object(bench, "BENCHES", {"gpu": lambda table, options: found.append(options.gpu_seconds)}), \
                unittest.mock.patch.object(bench.signal, "signal"), unittest.mock.patch.dict(os.environ):
            for arguments in ([], ["--gpu-seconds", "570"]):
                with unittest.mock.patch.object(sys, "argv", ["run", *arguments, "gpu"]):
                    bench.main()
        self.assertEqual(found, [3600, 570])

    def test_a_measurement_that_fails_takes_no_others_rows_with_it(self):
        bench = loaded("bench_run", TESTS / "bench" / "run")

        def fails(table, options):
            raise subprocess.CalledProcessError(3, "bench_trainer.py", stderr="no memory\n")

        rows = self.folder / "rows.json"
        with unittest.mock.patch.object(bench, "BENCHES", {
                "gpu": lambda table, options: table.add("before", [1.0], "s"), "trainer": fails,
                "cli": lambda table, options: table.add("after", [1.0], "s")}), \
                unittest.mock.patch.object(sys, "argv", ["run", "--json", str(rows), "gpu", "trainer", "cli"]), \
                unittest.mock.patch.object(bench.signal, "signal"), unittest.mock.patch.dict(os.environ), \
                contextlib.redirect_stdout(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            bench.main()
        self.assertEqual(ended.exception.code, 1)
        self.assertIn("FAILED: trainer", said.getvalue())
        found = {row["what"]: row for row in json.loads(rows.read_text())["rows"]}
        self.assertEqual(list(found), ["before", "trainer", "after"])
        self.assertEqual(found["trainer"]["not_run"], "NOT RUN")
        self.assertRegex(found["trainer"]["why"], "exit status 3.*: no memory$")


class Command(unittest.TestCase):
    def test_the_list_needs_neither_a_gpu_nor_a_build(self):
        done = command("--list", "--build", "/no/such/folder")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        named = {line.split()[0] for line in listed()}
        for part in ("gpu.nccl", "units", "figures"):
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(part)}: about \d+ s")
        for test, its in labels().items():
            if "gpu" in its and "NOT_BUILT" not in test:
                self.assertTrue(any(re.fullmatch(rf"(?:\w+/)?{re.escape(name)}(?:/.*)?", test) for name in named), test)

    def test_without_a_gpu_it_fails_and_names_each_test_with_the_reason(self):
        done = command("--build", str(BUILD))
        self.assertEqual(done.returncode, 1, done.stdout[-3000:])
        self.assertIn("nothing is installed or built", done.stdout)
        self.assertNotIn("== install", done.stdout)
        table = done.stdout[done.stdout.index("test or figure"):]
        for line in listed():
            if ALSO_WITHOUT.match(line):
                continue
            rows = re.findall(rf"^(?:\w+/)?{re.escape(line)}(?:/\w+)? +(\S.*)$", table, re.MULTILINE)
            self.assertTrue(rows, f"{line} is not in\n{table}")
            for row in rows:
                self.assertRegex(row, r"^NOT RUN: .*(?:GPU|libcuda|CUDA|is not built)", line)
        self.assertRegex(table, r"\ntests/gpu: \d seen, 0 failed, [0-9]{2,} NOT RUN\n$")

    def test_a_part_is_all_that_is_run_and_told(self):
        for arguments, wanted in ((["--only", "gpu_test.every_gpu", "gpu.gpu_values"], 2), (["--first"], 6)):
            tests = listed(*arguments)
            self.assertEqual(len(tests), wanted, tests)
            done = command(*arguments, "--build", "/no/such/folder")
            self.assertEqual(done.returncode, 1)
            rows = re.findall(r"^(\S.*?) +NOT RUN: ", done.stdout[done.stdout.index("test or figure"):], re.MULTILINE)
            self.assertEqual(sorted(rows), sorted(tests), done.stdout)
        self.assertEqual(command("--only", "nonsense").returncode, 2)

    def test_a_folder_without_a_build_proves_nothing(self):
        done = command("--build", "/no/such/folder")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"gpu_test\.every_gpu +NOT RUN: /no/such/folder has no such test")
        self.assertRegex(done.stdout, r"\ntests/gpu: 0 seen, 0 failed, [0-9]{2,} NOT RUN\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
