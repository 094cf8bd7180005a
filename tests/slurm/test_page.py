"""A job that waits, as the web page tells it: why, and when Slurm plans to start it; and when one that nobody has submitted
would start. tests/slurm/page.mjs looks, in Chromium."""

import os
import pathlib
import subprocess
import sys

from harness import BIN
from lockstep_slurm import main
from test_more_states import StateCase
from test_refusals import JOB_SUBMIT

PREPARED = pathlib.Path(os.environ.get("LOCKSTEP_WEB_PREPARED", BIN.parent / "tests" / "web" / "prepared"))
CHROMIUM = pathlib.Path(os.environ.get("LOCKSTEP_CHROMIUM", "/usr/bin/chromium"))


class Page(StateCase):
    settings = {"nodes": 2, "job_submit": JOB_SUBMIT}
    arguments = ("--web-root", PREPARED / "dist")

    def test_why_a_job_waits_and_when_it_is_to_start(self):
        self.block("--time=60")
        job = self.accepted("sleep 600", 2, name="after-the-other")
        shown = self.daemon.wait_for(job, lambda one: one.get("expected_start"), 60, "Slurm plans its start")
        with subprocess.Popen(["node", pathlib.Path(__file__).parent / "page.mjs", self.daemon.url, self.daemon.token, job],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "LOCKSTEP_WEB_PREPARED": str(PREPARED)}) as look:
            line = look.stdout.readline()
            print(line.strip(), "at", shown["expected_start"], flush=True)
            if line == "waits: seen\n":
                self.end_block()
                line = look.stdout.readline()
            look.stdin.close()
            self.assertEqual((line, look.wait(60)), ("starts: seen\n", 0))
        self.daemon.api("POST", f"/v1/jobs/{job}/cancel")
        self.daemon.wait_state(job, "cancelled")


if __name__ == "__main__":
    for needed in (PREPARED / "dist" / "index.html", CHROMIUM):
        if not needed.exists():
            print(f"SKIPPED: there is no {needed} (ctest -R web.prepare; Debian: chromium)", file=sys.stderr)
            sys.exit(77)
    main()
