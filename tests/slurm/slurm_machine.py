"""What a SlurmCluster (cluster.py) wants of the machine: programs, and for some tests two users."""

import os
import pwd
import re
import shutil
import subprocess
import time
from pathlib import Path

from slurm_clients import PREFIX, SEARCH_PATH
from slurm_hosts import Unavailable, bridges, start_time

USERS = ("lstest-a", "lstest-b")
MADE_HERE = "made by tests/slurm"  # in the users' comment field: ours to remove
PROGRAMS = ("ip", "nsenter", "unshare", "munged", "slurmctld", "slurmd", "scontrol", "sinfo")
CLIENTS = ("srun", "salloc", "sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo",
           "slurmrestd")


def release():
    """Of the Slurm that is tested: (22, 5)."""
    said = subprocess.run(["slurmd", "-V"], env={"PATH": SEARCH_PATH}, capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in re.search(r"(\d+)\.(\d+)", said).groups())


def restd_plugins(settings):
    """Without slurmdbd slurmrestd ends at once unless its OpenAPI plugins for that are left out."""
    alone = "v0.0.36,v0.0.37,v0.0.38" if release() < (23, 11) else "slurmctld"
    plugins = [] if settings.accounting else ["-s", alone]
    if parser := os.environ.get("LOCKSTEP_TEST_DATA_PARSER"):
        plugins += ["-d", parser]  # v0.0.43: and no other, so that Lockstep takes this one
    return plugins


def check_programs(settings):
    if os.geteuid() != 0:
        raise Unavailable("needs root (network namespaces, other users' jobs)")
    wanted = list(PROGRAMS)
    wanted += ["mariadbd", "slurmdbd", "sacct"] if settings.accounting else []
    wanted += ["slurmrestd"] if settings.slurmrestd else []
    wanted += ["useradd", "userdel"] if settings.users else []
    missing = [name for name in wanted if not shutil.which(name, path=SEARCH_PATH)]
    if missing:
        raise Unavailable(f"not installed (deploy/install-deps --test): {' '.join(missing)}")
    plugins = Path(PREFIX or "/usr").glob("lib/slurm/auth_jwt.so" if PREFIX else "lib/*/slurm*/auth_jwt.so")
    if settings.slurmrestd and not list(plugins):
        raise Unavailable("not installed (deploy/install-deps --test): slurm-wlm-jwt-plugin")


def add_users():
    for name in USERS:
        for _ in range(50):
            # Another cluster may be making it: useradd refuses while /etc/passwd is locked.
            made = subprocess.run(["useradd", "--no-create-home", "--home-dir", "/tmp", "--comment",
                                   MADE_HERE, "--shell", "/bin/bash", "--user-group", name],
                                  capture_output=True, text=True, check=False)
            if made.returncode in (0, 9):
                break
            time.sleep(0.1)
        else:
            raise Unavailable(f"useradd {name}: {made.stderr.strip()}")


def remove_users_if_last():
    if bridges():
        return
    for name in USERS:
        try:
            if pwd.getpwnam(name).pw_gecos == MADE_HERE:
                subprocess.run(["userdel", name], capture_output=True, check=False)
        except KeyError:
            pass


def clients_of(folder):
    """Slurm's commands on this machine that ask the cluster in a folder: {pid: start time}."""
    ours = f"SLURM_CONF={folder}/etc/slurm.conf".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if (entry.name.isdecimal() and (entry / "comm").read_text().strip() in CLIENTS
                    and ours in (entry / "environ").read_bytes().split(b"\0")):
                if (begun := start_time(entry.name)) is not None:
                    found[int(entry.name)] = begun
        except OSError:
            continue
    return found
