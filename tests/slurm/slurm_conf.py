"""What a test cluster is made of (Settings), and the text of its configuration files.

Option names and defaults: slurm.conf(5), gres.conf(5), slurmdbd.conf(5) of Slurm 22.05. Paths are
absolute everywhere: the daemons and clients find each other by SLURM_CONF alone.
"""

from dataclasses import dataclass, field
from pathlib import Path

CONTROLLER = "ctl"
SLURMCTLD_PORT, SLURMD_PORT, SLURMDBD_PORT = 6817, 6818, 6819


@dataclass
class Settings:
    """`options`: lines of slurm.conf that replace or extend the ones below, {"KillWait": "5"}."""
    nodes: int = 4
    cpus: int = 8                 # per node; only counted
    gpus: int = 2                 # per node; only counted
    memory_mb: int = 16000        # per node; only counted
    accounting: bool = False      # slurmdbd on mariadbd
    min_job_age: int = 300        # seconds a finished job stays in slurmctld
    preemption: bool = False      # `main` preempts `low`, whose jobs are requeued
    requeue: bool = True          # Slurm's own default: a job of a failed node starts again
    slurmrestd: bool = False      # with JWT; turns `scontrol token` on
    users: bool = False           # unix users lstest-a and lstest-b
    cred_expire: int = 30         # seconds; also how long a requeued job waits at least
    munge_ttl: int = 0            # seconds a request stays valid; 0: munge's own 300
    options: dict = field(default_factory=dict)

    @property
    def node_names(self):
        return [f"n{number}" for number in range(1, self.nodes + 1)]


def auth_info(folder, settings):
    return (f"socket={folder}/run/munge.socket,cred_expire={settings.cred_expire}"
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
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        # The machine has fewer processors than its nodes say.
        "SlurmdParameters": "config_overrides",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": 100,
        "GresTypes": "gpu",
        # Quick decisions: the default waits are 3 s for a batch job and 60 s for a queue that had
        # nothing to start.
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=1",
        "CompleteWait": 0,
        "KillWait": 2,
        "InactiveLimit": 0,
        "WaitTime": 0,
        "MinJobAge": settings.min_job_age,
        "JobRequeue": int(settings.requeue),
        # A node that is cut off is DOWN, and its jobs NODE_FAIL, within 15 s. MessageTimeout is
        # what counts: with 5 s it takes 17 s, whether SlurmdTimeout is 4 or 6.
        "MessageTimeout": 3,
        "TCPTimeout": 1,
        "SlurmdTimeout": 6,
        "SlurmctldTimeout": 10,
        "ReturnToService": 2,
        "UnkillableStepTimeout": 30,
        "PreemptType": "preempt/partition_prio" if settings.preemption else "preempt/none",
        "PreemptMode": "REQUEUE" if settings.preemption else "OFF",
        "JobAcctGatherType": "jobacct_gather/linux" if settings.accounting
                             else "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/slurmdbd" if settings.accounting
                                 else "accounting_storage/none",
    }
    if settings.accounting:
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
    text = [f"{key}={value}" for key, value in lines.items()]
    for name in settings.node_names:
        gres = f" Gres=gpu:{settings.gpus}" if settings.gpus else ""
        text.append(f"NodeName={name} NodeAddr={addresses[name]} CPUs={settings.cpus}"
                    f" RealMemory={settings.memory_mb}{gres} State=UNKNOWN")
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
    return f"AutoDetect=off\nName=gpu File={folder}/dev/gpu[0-{settings.gpus - 1}]\n"


def cgroup_conf():
    return "CgroupAutomount=no\n"


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
