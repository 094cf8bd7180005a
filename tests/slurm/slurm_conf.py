"""What a test cluster is made of (Settings), and the text of its configuration files.

Slurm's factory settings, so that the tests meet what users meet: every line below is a name, a
place, what this machine lacks, or stands there with its reason. What a test needs otherwise it says
itself: Settings, QUICK_LOSS, `options`.

Option names and defaults: slurm.conf(5), gres.conf(5), slurmdbd.conf(5) of Slurm 22.05. Paths are
absolute everywhere: the daemons and clients find each other by SLURM_CONF alone.
"""

from dataclasses import dataclass, field
from pathlib import Path

CONTROLLER = "ctl"
# For tests that wait for Slurm itself to give a node or a connection up, and for the node to come
# back: from the factory that takes 300 s and an administrator. A node that is cut off is DOWN, and
# its jobs NODE_FAIL, within 15 s. MessageTimeout is what counts: with 5 s it takes 17 s, whether
# SlurmdTimeout is 4 or 6.
QUICK_LOSS = {"MessageTimeout": 3, "TCPTimeout": 1, "SlurmdTimeout": 6, "ReturnToService": 2}
SLURMCTLD_PORT, SLURMD_PORT, SLURMDBD_PORT = 6817, 6818, 6819


@dataclass
class Settings:
    """`options`: lines of slurm.conf that replace or extend the ones below, {"KillWait": "5"}; None
    leaves one out."""
    nodes: int = 4
    cpus: int = 8                 # per node; only counted
    gpus: int = 2                 # per node; only counted
    memory_mb: int = 16000        # per node; only counted
    accounting: bool = False      # slurmdbd on mariadbd
    min_job_age: int = 300        # seconds a finished job stays in slurmctld
    preemption: bool = False      # `main` preempts `low`, whose jobs are requeued
    gpu_type: str = ""            # of every GPU; "" = they have none
    requeue: bool = True          # Slurm's own default: a job of a failed node starts again
    quick_loss: bool = False      # QUICK_LOSS
    job_submit: str = ""          # a site's job_submit.lua, its text
    slurmrestd: bool = False      # with JWT; turns `scontrol token` on
    users: bool = False           # unix users lstest-a and lstest-b
    cred_expire: int = 0          # seconds, also how long a requeued job waits at least; 0: Slurm's own 120
    munge_ttl: int = 0            # seconds a request stays valid; 0: munge's own 300
    options: dict = field(default_factory=dict)

    @property
    def node_names(self):
        return [f"n{number}" for number in range(1, self.nodes + 1)]


def auth_info(folder, settings):
    return (f"socket={folder}/run/munge.socket"
            + (f",cred_expire={settings.cred_expire}" if settings.cred_expire else "")
            + (f",ttl={settings.munge_ttl}" if settings.munge_ttl else ""))


def slurm_conf(folder: Path, settings: Settings, network, addresses):
    lines = {
        "ClusterName": f"test{network.index}",
        "SlurmctldHost": f"{CONTROLLER}({addresses[CONTROLLER]})",
        "SlurmctldPort": SLURMCTLD_PORT,
        "SlurmdPort": SLURMD_PORT,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": auth_info(folder, settings),
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        # The hosts share this machine's /tmp, and a PMIx folder there is named by its step alone.
        "TmpFS": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        # The machine has fewer processors than its nodes say.
        "SlurmdParameters": "config_overrides",
        # The factory's cgroups need a cgroup tree of slurmd's own; there is none in a container.
        "ProctrackType": "proctrack/linuxproc",
        # The factory's from 23.02 on; 22.05 has select/linear, which knows no --gpus-per-node.
        "SelectType": "select/cons_tres",
        # Jobs share a node, as on every site that sets it; without it a job of one CPU has the
        # whole memory of its node, and the tests would take turns.
        "DefMemPerCPU": 100,
        "GresTypes": "gpu",
        # Only time: the factory's waits are 3 s for a batch job, 60 s for a queue that had nothing to
        # start, and 30 s between two looks of the backfill scheduler. What slurmctld then does is
        # the same. test_factory.py goes without.
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
    }
    if settings.min_job_age != 300:
        lines["MinJobAge"] = settings.min_job_age
    if not settings.requeue:
        lines["JobRequeue"] = 0
    if settings.quick_loss:
        lines.update(QUICK_LOSS)
    if settings.preemption:
        lines["PreemptType"] = "preempt/partition_prio"
        lines["PreemptMode"] = "REQUEUE"
    if settings.job_submit:
        lines["JobSubmitPlugins"] = "lua"
    if settings.accounting:
        lines["JobAcctGatherType"] = "jobacct_gather/linux"
        lines["AccountingStorageType"] = "accounting_storage/slurmdbd"
        lines["AccountingStorageHost"] = addresses[CONTROLLER]
        # For slurmdbd AuthInfo's socket is not looked at.
        lines["AccountingStoragePass"] = f"{folder}/run/munge.socket"
        lines["AccountingStoragePort"] = SLURMDBD_PORT
        lines["AccountingStorageTRES"] = "gres/gpu"
        lines["JobAcctGatherFrequency"] = 5
    if settings.slurmrestd:
        lines["AuthAltTypes"] = "auth/jwt"
        lines["AuthAltParameters"] = f"jwt_key={folder}/keys/jwt.key"
    lines.update(settings.options)
    text = [f"{key}={value}" for key, value in lines.items() if value is not None]
    for name in settings.node_names:
        kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
        gres = f" Gres=gpu:{kind}{settings.gpus}" if settings.gpus else ""
        text.append(f"NodeName={name} NodeAddr={addresses[name]} CPUs={settings.cpus}"
                    f" RealMemory={settings.memory_mb}{gres} State=UNKNOWN")
    # Limits of a site's own, for the tests of limits; the factory has none.
    everywhere = f"Nodes={','.join(settings.node_names)} DefaultTime=5 MaxTime=60 State=UP"
    preempted = " PreemptMode=REQUEUE GraceTime=3" if settings.preemption else ""
    not_preempted = " PreemptMode=OFF" if settings.preemption else ""
    text.append(f"PartitionName=main Default=YES PriorityTier=10 {everywhere}{not_preempted}")
    text.append(f"PartitionName=low PriorityTier=1 {everywhere}{preempted}")
    return "\n".join(text) + "\n"


def gres_conf(folder: Path, settings: Settings):
    """slurmd only looks whether the device files are there (no cgroup confines a job to them)."""
    if not settings.gpus:
        return ""
    kind = f" Type={settings.gpu_type}" if settings.gpu_type else ""
    return f"AutoDetect=off\nName=gpu{kind} File={folder}/dev/gpu[0-{settings.gpus - 1}]\n"


def cgroup_conf(release):
    # There is no cgroup tree of slurmd's own in a container; from 23.11 on it must be told.
    return "CgroupPlugin=disabled\n" if release >= (23, 11) else "CgroupAutomount=no\n"


def slurmdbd_conf(folder: Path, settings: Settings, addresses):
    lines = {
        "DbdHost": CONTROLLER,
        "DbdAddr": addresses[CONTROLLER],
        "DbdPort": SLURMDBD_PORT,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": auth_info(folder, settings),
        "PidFile": f"{folder}/run/slurmdbd.pid",
        "LogFile": f"{folder}/log/slurmdbd.log",
        # localhost: through the socket that MYSQL_UNIX_PORT names in slurmdbd's environment.
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm",
    }
    if settings.slurmrestd:
        lines["AuthAltTypes"] = "auth/jwt"
        lines["AuthAltParameters"] = f"jwt_key={folder}/keys/jwt.key"
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def hosts_file(addresses, machine, machine_address):
    lines = ["127.0.0.1 localhost", f"{machine_address} host {machine}"]
    lines += [f"{address} {name}" for name, address in addresses.items()]
    return "\n".join(lines) + "\n"
