"""A job that a Slurm of six scripts says runs; whoever has its ticket is its agents."""

import contextlib
import json
import pathlib
import tempfile

SLURM = {
    "sbatch": """[ "$1" = --version ] && { echo slurm 22.05.8; exit; }
for file; do :; done
sed -n 's/^#SBATCH --job-name=//p' "$file" | tr -d "'" > "$here/name"
echo 1""",
    "squeue": """[ -s "$here/name" ] || exit 0
while [ "$1" != -o ]; do shift; done
now=$(date +%s)
printf '%s\\n' "$2" | sed "s/%A/1/;s/%U/$(id -u)/;s/%u/$(id -un)/;s/%T/RUNNING/;s/%r/None/;s/%N/n1/;s/%P/p/
s/%S/$now/;s/%V/$now/;s/%e/$now/;s/%j/$(cat "$here/name")/" """,
    "scancel": """rm -f "$here/name" """, "sacct": ":", "sinfo": ":",
    "scontrol": """case "$*" in
*config*) printf 'ClusterName = bench\\nSLURM_VERSION = 22.05.8\\n' ;;
*partition*) echo PartitionName=p State=UP Default=YES TotalNodes=16384 MaxNodes=UNLIMITED TotalCPUs=4000000 ;;
esac"""}


@contextlib.contextmanager
def waiting_job(daemon, nodes, ranks):
    """(daemon, job, ticket) of a job of `nodes` nodes, `ranks` ranks each, that waits for its agents."""
    with tempfile.TemporaryDirectory(prefix="lockstep-slurm-") as folder:
        for name, text in SLURM.items():
            path = pathlib.Path(folder) / name
            path.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\n{text}\n')
            path.chmod(0o755)
        with daemon("--scheduler", "slurm", "--slurm-bin-dir", folder, "--slurm-poll-seconds", "5") as service:
            job = service.submit({"name": "bench", "framework": "command", "command": ["/bin/true"],
                                  "resources": {"nodes": nodes, "ranks_per_node": ranks}})["id"]
            file = service.data / "runs" / job / "a1" / "agent.json"
            service.wait_state(job, "starting", seconds=60)
            yield service, job, json.loads(file.read_text())["ticket"]
