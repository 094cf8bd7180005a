"""A build folder that one command has made and another goes on with: the README's two commands in one clone."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TESTS = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DLOCKSTEP_TESTS=ON", "-DLOCKSTEP_TRAINER=OFF")


class BuildFolder(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.folder = self.root / "build"

    def configure(self, *options):
        """The command line of each source, by what it makes."""
        done = subprocess.run(["cmake", "-S", SOURCE, "-B", self.folder, *options], text=True, capture_output=True, check=False, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        return {re.search(r" -o (\S+)", entry["command"])[1]: entry["command"] for entry in entries}

    def test_without_googletest_the_tests_are_left_out_unless_they_are_asked_for(self):
        """README's and operator.md's first commands failed on a machine where no tests had ever been built."""
        def configured(*options):
            return subprocess.run(["cmake", "-S", SOURCE, "-B", self.folder, "-G", "Ninja", "-DLOCKSTEP_TRAINER=OFF",
                                   "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", *options], text=True, capture_output=True, check=False,
                                  timeout=300)
        for _ in range(2):  # and when it is configured again
            done = configured()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the tests are left out", configured("-ULOCKSTEP_TESTS").stdout)
        self.assertFalse((self.folder / "tests").exists())
        done = configured("-DLOCKSTEP_TESTS=ON")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("GTest", done.stderr)

    def quick_start(self):
        [options] = re.findall(r"generator=\((-G [^)]*)\)", (SOURCE / "deploy/quickstart").read_text())
        return self.configure(*options.split(), "-DLOCKSTEP_TRAINER=OFF")

    def test_tests_built_in_the_quick_starts_folder_are_built_as_in_a_new_one(self):
        quick = self.quick_start()
        self.assertTrue(all(" -O1 " in command for output, command in quick.items() if "/lockstep_model.dir/" in output))
        self.assertEqual(len([output for output in quick if "/lockstep_model.dir/" in output]), 1, "the library is one piece")
        taken_over = self.configure(*TESTS)
        shutil.rmtree(self.folder)
        new = self.configure(*TESTS)
        self.assertGreater(len(new), 100)
        self.assertEqual(taken_over.keys(), new.keys())
        other = {output: (taken_over[output], command) for output, command in new.items() if taken_over[output] != command}
        self.assertEqual(other, {}, "taken over, and new")


if __name__ == "__main__":
    unittest.main()
