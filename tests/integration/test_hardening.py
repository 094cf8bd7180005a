"""How the programs were compiled and linked: what Debian gives its packages (https://wiki.debian.org/Hardening)."""

import re
import shutil
import subprocess
import unittest

import harness

CACHE = harness.BIN.parent / "CMakeCache.txt"


def is_on(name):
    return re.search(rf"^{name}:\w+=ON$", CACHE.read_text(), re.MULTILINE) is not None


def sanitized():
    return re.search(r"^LOCKSTEP_SANITIZE:\w+=\S", CACHE.read_text(), re.MULTILINE) is not None


@unittest.skipUnless(shutil.which("readelf"), "readelf (binutils) is not installed")
@unittest.skipUnless(CACHE.exists(), f"{CACHE} is not there: the programs were not built here")
class Hardening(unittest.TestCase):
    def setUp(self):
        if not is_on("LOCKSTEP_HARDENING") or sanitized():
            self.skipTest("built without LOCKSTEP_HARDENING, or with sanitizers")

    def read(self, program, *what):
        return subprocess.run(["readelf", "--wide", *what, harness.BIN / program], capture_output=True, text=True,
                              timeout=120, check=True).stdout

    def test_programs_are_hardened(self):
        for program in ("lockstepd", "lockstep", "lockstep-agent"):
            with self.subTest(program):
                self.assertRegex(self.read(program, "-h"), r"Type:\s+DYN", "not at a fixed address")
                dynamic = self.read(program, "-d")
                self.assertRegex(dynamic, r"BIND_NOW|Flags:.*\bNOW\b")
                segments = self.read(program, "-l")
                self.assertIn("GNU_RELRO", segments)
                self.assertRegex(segments, r"GNU_STACK\s.*\sRW\s", "the stack is not executable")
                symbols = self.read(program, "--dyn-syms")
                self.assertIn("__stack_chk_fail", symbols)
                self.assertRegex(symbols, r"__\w+_chk@", "_FORTIFY_SOURCE")
                self.assertIn("__glibcxx_assert_fail", symbols)


if __name__ == "__main__":
    harness.main()
