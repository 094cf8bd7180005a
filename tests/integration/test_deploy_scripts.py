"""The scripts of deploy/ that come before there is a build: what they install, refuse, and take for a path."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class DeployScripts(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.programs = self.root / "bin"
        self.programs.mkdir()

    def program(self, path, body):
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run_with_those_programs(self, *command, **environment):
        return subprocess.run(command, text=True, capture_output=True, check=False, timeout=60,
                              env={"PATH": str(self.programs), **environment})

    def test_beside_an_nvcc_that_is_there_nccl_is_still_installed(self):
        """Nobody brought one of 2.30 then, and ranks could not share a GPU."""
        for name in ("basename", "cat", "dirname", "ln", "mkdir", "mv", "rm", "sed", "touch"):
            (self.programs / name).symlink_to(shutil.which(name))
        wheels, asked = self.root / "wheels", self.root / "asked"
        # pip: what it was asked for is its last words, behind the folder.
        self.program(self.programs / "python3", f'[ "$3" = install ] || exit 0\nwhile [ "$1" != --target ]; do shift; done\n'
                     f'mkdir -p "$2/nvidia/nccl/lib"; touch "$2/nvidia/nccl/lib/libnccl.so.2"; shift 2; echo "$*" >>{asked}')
        releases = [("13.0", "nvidia-nccl-cu13=="), ("12.8", "nvidia-nccl-cu12=="), ("11.8", "cuda-toolkit[")]
        if pathlib.Path("/usr/local/cuda/bin/nvcc").exists():
            releases.pop()  # that one would be found behind it
        for release, wanted in releases:
            self.program(self.programs / "nvcc", f"echo Cuda compilation tools, release {release}, V{release}.1")
            for _ in range(2):  # the second has nothing to do
                done = self.run_with_those_programs(SOURCE / "deploy/install-deps", "--cuda", LOCKSTEP_CUDA_WHEELS=str(wheels),
                                                    CUDA_HOME=str(self.root / "none"))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertTrue((wheels / "nvidia/nccl/lib/libnccl.so").exists(), "the name without a version")
            self.assertIn("up to date", done.stdout)
            self.assertTrue(asked.read_text().splitlines()[-1].startswith(wanted), asked.read_text())
        self.assertEqual(len(asked.read_text().splitlines()), len(releases))
        if len(releases) == 3:  # all of them are there, with the NCCL that an nvcc 13 takes
            self.program(self.programs / "nvcc", "echo release 13.0, V13.0.1")
            done = self.run_with_those_programs(SOURCE / "deploy/install-deps", "--cuda", LOCKSTEP_CUDA_WHEELS=str(wheels))
            self.assertEqual((done.returncode, len(asked.read_text().splitlines())), (0, 3), done.stdout + done.stderr)

    def test_portable_installs_what_the_packages_are_made_with(self):
        """A minimal Debian has no pip, and cpack made packages there that depended on nothing."""
        self.program(self.programs / "dpkg-query", "exit 1")  # nothing is installed
        self.program(self.programs / "id", "echo 1000")       # and nobody may install it
        done = self.run_with_those_programs(SOURCE / "deploy/install-deps", "--portable")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        wanted = re.search(r"(?:install|corresponds to): (.*)", done.stderr)[1].split()
        self.assertEqual(set(wanted), {"python3-pip", "dpkg-dev", "file", "rpm"})
        self.program(self.programs / "zig", "exit 0")  # enough for the programs, on any distribution
        done = self.run_with_those_programs(SOURCE / "deploy/install-deps", "--portable")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("without them cpack makes no packages", done.stderr)

    @unittest.skipUnless(shutil.which("cmake"), "there is no cmake")
    def test_packages_without_dependencies_are_refused(self):
        arguments = [shutil.which("cmake"), "-DCPACK_GENERATOR=DEB", "-P", SOURCE / "deploy/cmake/package_components.cmake"]
        done = self.run_with_those_programs(*arguments)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("There is no dpkg-shlibdeps", done.stderr)
        for name in ("dpkg-shlibdeps", "file"):
            self.program(self.programs / name, "exit 0")
        done = self.run_with_those_programs(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_quick_starts_data_directory_is_where_it_was_typed(self):
        tree, elsewhere = self.root / "clone", self.root / "elsewhere"
        for folder in (tree / "deploy", elsewhere):
            folder.mkdir(parents=True)
        shutil.copy(SOURCE / "deploy/quickstart", tree / "deploy/quickstart")
        self.program(tree / "deploy/install-deps", "exit 3")  # and no further
        done = subprocess.run([tree / "deploy/quickstart", "--data-dir", "state"], cwd=elsewhere, text=True, capture_output=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertTrue((elsewhere / "state").is_dir())
        self.assertFalse((tree / "state").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
