"""What stands for sbatch in the tests of faults: hands the job in, then says something else than the
truth, or nothing, as the file `mode` beside it tells.

    lie = LyingSbatch(folder)
    daemon.bin_dir = lie.folder
    lie.mode = "timeout"
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


def programs_with_sbatch(folder, script):
    """A folder of Slurm's programs with this script in sbatch's place."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    for program in ("squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"):
        (folder / program).symlink_to(program_path(program))
    (folder / "sbatch").write_text(script)
    (folder / "sbatch").chmod(0o755)
    return folder


class LyingSbatch:
    """A folder for --slurm-bin-dir."""

    def __init__(self, folder):
        self.folder = programs_with_sbatch(folder, SBATCH.replace("{real}", program_path("sbatch")))
        self.mode = "honest"

    @property
    def mode(self):
        return (self.folder / "mode").read_text().strip()

    @mode.setter
    def mode(self, mode):
        """In one step: an sbatch that reads it meanwhile finds the old one or the new one."""
        new = self.folder / "mode.new"
        new.write_text(mode)
        new.rename(self.folder / "mode")
