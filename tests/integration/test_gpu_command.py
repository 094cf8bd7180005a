"""`tests/gpu`, the one command for a machine with a GPU, where there is none: every test that skips for want of one has
ctest's label `gpu`, and the command fails and names each. With the real ctest and the build folder that runs this."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

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


class Command(unittest.TestCase):
    def test_the_list_needs_neither_a_gpu_nor_a_build(self):
        done = command("--list", "--build", "/no/such/folder")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        named = {line.split()[0] for line in done.stdout.splitlines()}
        for test, its in labels().items():
            if "gpu" in its and "NOT_BUILT" not in test:
                self.assertTrue(any(re.fullmatch(rf"(?:\w+/)?{re.escape(name)}(?:/.*)?", test) for name in named), test)

    def test_without_a_gpu_it_fails_and_names_each_test_with_the_reason(self):
        done = command("--build", str(BUILD))
        self.assertEqual(done.returncode, 1, done.stdout[-3000:])
        self.assertIn("nothing is installed or built", done.stdout)
        self.assertNotIn("== install", done.stdout)
        table = done.stdout[done.stdout.index("test or figure"):]
        for line in command("--list").stdout.splitlines():
            if ALSO_WITHOUT.match(line):
                continue
            rows = re.findall(rf"^(?:\w+/)?{re.escape(line)}(?:/\w+)? +(\S.*)$", table, re.MULTILINE)
            self.assertTrue(rows, f"{line} is not in\n{table}")
            for row in rows:
                self.assertRegex(row, r"^NOT RUN: .*(?:GPU|libcuda|CUDA|is not built)", line)
        self.assertRegex(table, r"\ntests/gpu: \d seen, 0 failed, [0-9]{2,} NOT RUN\n$")

    def test_a_folder_without_a_build_proves_nothing(self):
        done = command("--build", "/no/such/folder")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"gpu_test\.every_gpu +NOT RUN: /no/such/folder has no such test")
        self.assertRegex(done.stdout, r"\ntests/gpu: 0 seen, 0 failed, [0-9]{2,} NOT RUN\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
