"""`tests/fault/run soak`, a quarter of a minute of it: its figures are made right, and nothing that it asks for fails. How fast
anything grows cannot be told in such a time, and is not asserted."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", SOURCE / "build" / "bin"))
sys.path[:0] = [str(SOURCE / part) for part in ("tests/fault", "tests/support")]
import soak  # noqa: E402


class Slope(unittest.TestCase):
    def test_a_line_has_its_slope_and_no_error(self):
        grows, error = soak.slope([(t, 20 + 3 * t / 3600) for t in range(0, 3600, 300)])
        self.assertAlmostEqual(grows, 3)
        self.assertAlmostEqual(error, 0)

    def test_what_goes_up_and_down_has_an_error_that_holds_it(self):
        grows, error = soak.slope([(t, 20 + (5 if t % 600 else -5)) for t in range(0, 7200, 300)])
        self.assertGreater(error, 1)
        self.assertLess(abs(grows), 2 * error)

    def test_of_two_values_nothing_is_said(self):
        self.assertEqual(soak.slope([(0, 1), (1, 2)])[1], float("inf"))

    def test_one_peak_in_a_block_does_not_count(self):
        points = [(t, 900 if t == 310 else 20) for t in range(0, 1200, 10)]
        self.assertEqual([value for _, value in soak.blocks(points, 300)], [20] * 4)


class Soak(unittest.TestCase):
    def test_all_its_works_are_done_and_none_fails(self):
        done = subprocess.run([sys.executable, "-B", SOURCE / "tests/fault/run", "soak", "--bin", BIN, "--minutes", "0.25",
                               "--nodes", "4", "--ranks", "2", "--every", "0.1", "--tell", "5"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
        said = done.stdout
        for who in ("ranks", "churn"):
            self.assertRegex(said, rf"(?m)^{who}: resident [\d.]+ MiB .*[+-][\d.]+ ± [\d.]+ MiB/h")
        self.assertEqual(re.findall(r"failed (\d+)$", said, re.M), ["0", "0"], said)
        self.assertGreater(float(re.search(r"([\d,]+) samples taken", said)[1].replace(",", "")), 4 * 2 * 4)
        ended = re.search(r"jobs that came and went: (\d+) succeeds, (\d+) fails, (\d+) restarts, (\d+) is cancelled", said)
        self.assertTrue(ended and all(map(int, ended.groups())), said)
        self.assertIn("min  ranks", said)


if __name__ == "__main__":
    unittest.main()
