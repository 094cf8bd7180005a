"""Ranks in containers. Without apptainer on this machine a stand-in takes its place that runs what it is
given outside any container: what reaches the rank is real, what a container hides is not shown."""

import os
import shutil

import harness

STAND_IN = """#!/bin/bash
# apptainer exec [options] IMAGE COMMAND…: says how it was called and becomes the command.
printf '%s\\n' "$@" > "$(dirname "$0")/called-$LOCKSTEP_RANK"
shift
while :; do
    case $1 in
    --bind) [ -e "${2%%:*}" ] || { echo "no such path: $2" >&2; exit 255; }; shift 2 ;;
    --pwd) cd "$2" || exit 255; shift 2 ;;
    --nv) shift ;;
    *) break ;;
    esac
done
[ "$1" = /images/torch.sif ] || { echo "FATAL: no image $1" >&2; exit 255; }
shift
exec "$@"
"""


class Container(harness.TestCase):
    def setUp(self):
        super().setUp()
        self.bin = self.root / "bin"
        self.bin.mkdir()

    def with_stand_in(self):
        (self.bin / "apptainer").write_text(STAND_IN)
        (self.bin / "apptainer").chmod(0o755)
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = f"{self.bin}:{before}"
        self.daemon.restart()

    def spec(self, script, image="/images/torch.sif", **more):
        return {**harness.command_job("boxed", "/bin/sh", "-c", script, resources={"ranks_per_node": 2}),
                "container": {"runtime": "apptainer", "image": image, "mounts": ["/tmp:/tmp:ro"]}, **more}

    def test_ranks_run_inside_with_their_environment_and_report(self):
        self.with_stand_in()
        job = self.daemon.submit(self.spec('echo "rank $RANK of $WORLD_SIZE in $PWD"; [ -S "$LOCKSTEP_SOCKET" ]',
                                           working_directory="/usr"))
        self.daemon.wait_state(job["id"], "succeeded")
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2 in /usr", self.daemon.rank_log(job["id"], rank))
            words = (self.bin / f"called-{rank}").read_text().splitlines()
            self.assertEqual(words[0], "exec")
            self.assertIn("/tmp:/tmp:ro", words)
            self.assertNotIn("--nv", words)

    def test_an_image_that_is_not_there_is_the_cause_with_the_runtimes_words(self):
        self.with_stand_in()
        job = self.daemon.submit(self.spec("true", image="/images/missing.sif"))
        done = self.daemon.wait_state(job["id"], "failed")
        self.assertEqual((done["cause"]["class"], done["cause"]["exit_code"]), ("rank_exit", 255))
        self.assertIn("no image /images/missing.sif", done["cause"]["log_tail"])

    def test_without_the_runtime_it_is_refused_before_it_is_accepted(self):
        if shutil.which("apptainer"):
            self.skipTest("apptainer is installed")
        for runtime, words in (("apptainer", "not installed"), ("pyxis", "needs Slurm")):
            spec = self.spec("true")
            spec["container"]["runtime"] = runtime
            status, answer = self.daemon.api("POST", "/v1/jobs", spec)
            self.assertEqual(status, 400, answer)
            self.assertEqual(answer["errors"][0]["pointer"], "/container/runtime")
            self.assertIn(words, answer["errors"][0]["message"])


if __name__ == "__main__":
    harness.main()
