"""A oneDNN that is not LibTorch's is refused when the build is configured (deploy/cmake/OneDnn.cmake), with the reason.

    onednn_test.py CMAKE COMPILER READELF
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

MODULE = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "cmake" / "OneDnn.cmake"
CMAKE, COMPILER, READELF = sys.argv[1:4]


class OneDnn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def library(self, name, *links):
        """One of that soname, in a file of that name."""
        path = self.root / name
        subprocess.run([COMPILER, "-shared", "-nostdlib", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-Wl,--no-as-needed",
                        "-x", "none", *links, "-o", path], check=True)
        return path

    def include(self, major):
        folder = self.root / f"include{major}" / "oneapi" / "dnnl"
        folder.mkdir(parents=True)
        (folder / "dnnl_version.h").write_text(f"/// Major version\n#define DNNL_VERSION_MAJOR {major}\n#define DNNL_VERSION_MINOR 7\n")
        return self.root / f"include{major}"

    def check(self, torch, onednn, include):
        script = self.root / "check.cmake"
        script.write_text(f'set(CMAKE_READELF "{READELF}")\ninclude("{MODULE}")\n'
                          f'lockstep_onednn_entry("{torch}" NEEDED needed)\nmessage(STATUS "needed: ${{needed}}.")\n'
                          f'lockstep_check_onednn("{torch}" "{onednn}" "{include}")\n')
        done = subprocess.run([CMAKE, "-P", script], capture_output=True, text=True, check=False)
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    def test_only_the_one_that_libtorch_is_linked_with_is_taken(self):
        two, three = self.library("libdnnl.so.2"), self.library("libdnnl.so.3")
        torch = self.library("libtorch_cpu.so", self.library("libother.so.1"), two)
        status, said = self.check(torch, two, self.include(2))
        self.assertEqual(status, 0, said)
        self.assertIn("needed: libdnnl.so.2.", said)
        status, said = self.check(torch, three, self.root / "include2")
        self.assertNotEqual(status, 0)
        self.assertIn(f"{torch} is linked with libdnnl.so.2, and {three} is libdnnl.so.3.", said)
        status, said = self.check(torch, two, self.include(3))
        self.assertNotEqual(status, 0)
        self.assertIn(f"is linked with libdnnl.so.2, and the header in {self.root / 'include3'} is of oneDNN 3.", said)

    def test_a_libtorch_with_its_oneDNN_within_is_linked_with_none(self):
        _, said = self.check(self.library("libtorch_cpu.so"), self.library("libdnnl.so.2"), self.include(2))
        self.assertIn("needed: .", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
