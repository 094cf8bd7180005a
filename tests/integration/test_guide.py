"""The user's guide, tried: its three broken scripts, each with the commands that stand below it."""

import re

import harness
import test_documents

GUIDE = (harness.SOURCE / "job" / "guide.md").read_text()
BROKEN = re.search(r"^## Three broken scripts\n(.*?)^## ", GUIDE, re.DOTALL | re.MULTILINE).group(1)


class Broken(test_documents.Submitted):
    def lines(self, name):
        """Writes the script into the folder; the commands of the block after it."""
        found = re.search(rf"^```python\n(# {name}\.py\n.*?)^```\n+```sh\n(.*?)^```", BROKEN, re.DOTALL | re.MULTILINE)
        (self.work / f"{name}.py").write_text(found.group(1))
        return [re.sub(r"\s+#.*", "", line) for line in found.group(2).splitlines()]

    def test_every_script_of_the_section_is_tried(self):
        self.assertEqual(re.findall(r"^# (\w+)\.py$", BROKEN, re.MULTILINE), ["raises", "hangs", "diverges"])

    def test_the_rank_that_raises_is_the_cause(self):
        run, show, logs = self.lines("raises")
        done = self.run_here(run, check=False, seconds=90)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for text in (done.stdout + done.stderr, self.run_here(show).stdout):
            self.assertRegex(text, r"rank_exit: rank 1 on \S+ raised KeyError: 'cat'")
        self.assertIn("KeyError: 'cat'", self.run_here(logs).stdout)

    def test_the_rank_that_hangs_is_behind_with_its_line(self):
        run, now, evidence, stack, cancel = self.lines("hangs")
        self.assertIn("# rank 1 is behind, in hangs.py:9", BROKEN)
        job = self.run_here(run).stdout.split()[0]

        def steps():
            ranks = self.daemon.get(f"/v1/jobs/{job}/ranks")["items"]
            return [rank.get("step") for rank in sorted(ranks, key=lambda rank: rank["rank"])]

        harness.wait_until(lambda: steps() == [5, 4], 60, "rank 0 waits for rank 1")
        self.run_here(now, check=False)  # on a busy machine the capture may take longer than the command waits
        shown = harness.wait_until(lambda: self.found(evidence, "hangs.py:9"), 60, "the capture is there")
        ranks = [line for line in shown.splitlines() if re.match(r"\s*[01]\s", line)]
        self.assertTrue(ranks and ranks[0].split()[0] == "1", shown)
        self.assertIn("hangs.py", self.run_here(stack).stdout)
        self.run_here(cancel)
        self.daemon.wait_state(job, "cancelled", 60)

    def found(self, line, text):
        done = self.run_here(line, check=False)
        return done.stdout if text in done.stdout else None

    def test_the_loss_that_is_no_number_is_an_anomaly(self):
        run, show, cancel = self.lines("diverges")
        job = self.run_here(run).stdout.split()[0]
        harness.wait_until(lambda: any(e["kind"] == "anomaly" for e in self.daemon.events(job)), 60, "the anomaly")
        self.assertRegex(self.run_here(show).stdout, r"nonfinite +rank 1 on \S+ +loss is NaN, step 5")
        self.run_here(cancel)
        self.daemon.wait_state(job, "cancelled", 60)


if __name__ == "__main__":
    harness.main()
