"""What stands for sbatch in the tests of faults: hands the job in, then says something else than the
truth, or nothing, as the file `mode` beside it tells.

    lie = LyingSbatch(folder)
    daemon.bin_dir = lie.folder
    lie.mode = "timeout"

And for squeue, beside it: LyingSqueue(lie.folder).mode = "empty".
"""

import pathlib

from slurm_clients import program_path

# Each hands the job in and then says or does what its name is; refuse-connection hands nothing in,
# once, and is honest from then on. Not among them: `lost` hands nothing in and says what `timeout`
# says; `late` says so, too, and the job comes some seconds later.
MODES = ("silent", "timeout", "fail", "garbage", "numbers", "die", "banner", "semicolon", "comma", "hang",
         "refuse-connection")

SBATCH = """#!/bin/bash
folder=$(dirname "$0")
mode=$(cat "$folder/mode")
[ "$1" != --version ] || exec {real} --version
if [ "$mode" = refuse-connection ]; then
    echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2
    echo honest > "$folder/mode"
    exit 1
fi
if [ "$mode" = lost ] || [ "$mode" = late ]; then
    if [ "$mode" = late ]; then
        # Whoever is still of this process group when sbatch has ended is ended with it.
        setsid --fork sh -c 'echo away > "$0"; sleep 4; exec {real} "$@"' "$folder/away" "$@" > /dev/null 2>&1
        until [ -s "$folder/away" ]; do sleep 0.05; done
    fi
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    exit 1
fi
id=$({real} "$@") || exit
case $mode in
    silent) ;;
    timeout) echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
    fail) echo "Welcome"; exit 1 ;;
    garbage) head -c 200 /dev/urandom ;;
    numbers) echo 2026; echo "$id" ;;
    hang) sleep 120; echo "$id" ;;
    die) kill -9 $$ ;;
    banner) echo "*** Welcome to the cluster ***"; echo "$id"; echo "Have a nice day" ;;
    semicolon) echo "$id;test" ;;
    comma) echo "$id,test" ;;
    *) echo "$id" ;;
esac
"""

# Each while sbatch goes on: an answer that takes its time, none, one that shows no job and one that was cut
# off, both with status 0.
SQUEUE_MODES = ("slow", "fail", "empty", "cut")

# What hides jobs does so for eight seconds: a job that counts as forgotten is handed in again, and what comes
# then must not run beside it. Of a squeue that shows nothing for longer the jobs are given up on purpose.
SQUEUE = """#!/bin/bash
folder=$(dirname "$0")
mode=$(cat "$folder/squeue-mode")
age=$(($(date +%s) - $(stat -c %Y "$folder/squeue-mode")))
case $mode in
    empty | cut) [ "$age" -lt 8 ] || mode=honest ;;
esac
case $mode in
    slow) sleep 3; exec {real} "$@" ;;
    fail) echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
    empty) ;;
    cut) all=$({real} "$@") || exit; printf %s "${all:0:$((${#all} / 2))}" ;;
    *) exec {real} "$@" ;;
esac
"""


def programs_with_sbatch(folder, script):
    """A folder of Slurm's programs with this script in sbatch's place."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    for program in ("squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"):
        (folder / program).symlink_to(program_path(program))
    (folder / "sbatch").write_text(script)
    (folder / "sbatch").chmod(0o755)
    return folder


class Liar:
    """A program whose way to be is in a file beside it."""

    def __init__(self, folder, mode_file):
        self.folder = folder
        self.mode_file = folder / mode_file
        self.mode = "honest"

    @property
    def mode(self):
        return self.mode_file.read_text().strip()

    @mode.setter
    def mode(self, mode):
        """In one step: one that reads it meanwhile finds the old one or the new one."""
        new = self.mode_file.with_suffix(".new")
        new.write_text(mode)
        new.rename(self.mode_file)


class LyingSbatch(Liar):
    """A folder for --slurm-bin-dir."""

    def __init__(self, folder):
        super().__init__(programs_with_sbatch(folder, SBATCH.replace("{real}", program_path("sbatch"))), "mode")


class LyingSqueue(Liar):
    """In the folder of a LyingSbatch."""

    def __init__(self, folder):
        super().__init__(folder, "squeue-mode")
        (folder / "squeue").unlink()
        (folder / "squeue").write_text(SQUEUE.replace("{real}", program_path("squeue")))
        (folder / "squeue").chmod(0o755)
