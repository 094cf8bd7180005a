"""A real Slurm, several hosts on this machine, for tests; command.py is its command line.

    with SlurmCluster(nodes=4, accounting=True) as cluster:
        cluster.run("srun", "-N4", "hostname").stdout
        cluster.cut("n2")

    tests/slurm/cluster start DIR --nodes 4 ; eval "$(tests/slurm/cluster env DIR)" ; sinfo
    tests/slurm/cluster stop DIR

slurmctld (with slurmdbd and mariadbd) is on host `ctl`, each slurmd on a host n1, n2, …: own
address, own host name, own /etc/hosts. The machine itself is `host` to them, at host_address.
Everything of a cluster is in its folder, and any number of clusters run side by side. Needs root
and Debian's packages (deploy/install-deps --test); what is missing is named in Unavailable, exit
status 77.

Whoever leaves without stop() is cleaned up after by the next start, of any cluster.
"""

import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from dataclasses import asdict, fields
from pathlib import Path

import slurm_conf
from slurm_clients import Clients
from slurm_conf import CONTROLLER, SLURMCTLD_PORT, SLURMDBD_PORT, Settings
from slurm_hosts import (Network, Unavailable, bridges, kill, listens, reap, signal_process, start_time, stat_of,
                         until)
from slurm_machine import (USERS, add_users, check_programs, clients_of, release, remove_users_if_last,
                           restd_plugins)
from slurm_state import SavedState

FOLDERS = ("etc", "log", "shared", "run", "state", "spool", "keys", "dev", "mysql")
KEPT = 3  # these stay after stop


class SlurmCluster(Clients, SavedState):
    """One cluster; the options are slurm_conf.Settings'. Without a folder it makes one in /tmp and
    removes it at stop. Not thread-safe."""

    def __init__(self, folder=None, **settings):
        self.temporary = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="slurm-", dir="/tmp")).resolve()
        self.settings = Settings(**settings)
        self.network = None
        self.addresses = {}
        self.keepers = {}
        self.daemons = {}  # name -> [pid, start time]
        self.rest_port = 0
        self.owner = [os.getpid(), start_time(os.getpid())]

    @classmethod
    def open(cls, folder):
        """The cluster that an earlier process started in a folder; None if there is none."""
        folder = Path(folder).resolve()
        try:
            saved = json.loads((folder / "cluster.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        known = {field.name for field in fields(Settings)}
        cluster = cls(folder, **{k: v for k, v in saved["settings"].items() if k in known})
        cluster.network = Network(saved["index"])
        for name in ("addresses", "keepers", "daemons", "rest_port", "owner"):
            setattr(cluster, name, saved[name])
        return cluster

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # --- paths and addresses

    @property
    def conf(self):
        return self.folder / "etc/slurm.conf"

    @property
    def host_address(self):
        """This machine's address as the nodes see it."""
        return self.network.host_address

    @property
    def nodes(self):
        return self.settings.node_names

    @property
    def shared(self):
        """A folder for jobs' files: every node and user may write there. Commands start there."""
        return self.folder / "shared"

    @property
    def controller_log(self):
        return self.folder / "log/slurmctld.log"

    def node_log(self, node):
        return self.folder / f"log/slurmd-{node}.log"

    @property
    def rest_url(self):
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def rest_socket(self):
        return self.folder / "run/rest/socket"

    # --- start and stop

    def start(self):
        """Returns when all nodes are idle. Leaves nothing behind when it fails."""
        if not 1 <= self.settings.nodes <= 200:
            raise ValueError("1 to 200 nodes")
        if len(str(self.folder)) > 60:
            raise Unavailable(f"{self.folder}: longer than 60 characters (slurmstepd's sockets "
                              "are below it, and sockets' paths end at 108)")
        try:
            check_programs(self.settings)
            sweep()
            if earlier := SlurmCluster.open(self.folder):
                earlier.stop()
            self.make_folders()
            self.network = Network.claim(self.folder)
            self.save()
            self.start_everything()
        except BaseException as error:
            self.stop(keep_logs=not isinstance(error, Unavailable))
            raise
        return self

    def make_folders(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "run/rest").mkdir()
        self.shared.chmod(0o1777)
        for name in self.nodes:
            (self.folder / "spool" / name).mkdir()
        for number in range(self.settings.gpus):
            self.make_device(self.folder / f"dev/gpu{number}")
        for name in ("keys", "mysql"):
            (self.folder / name).chmod(0o700)
        for name in ("munge.key", "jwt.key"):
            (self.folder / "keys" / name).write_bytes(secrets.token_bytes(64))
            (self.folder / "keys" / name).chmod(0o600)

    @staticmethod
    def make_device(path):
        """slurmd takes nothing else for a GPU: with a plain file jobs get no CUDA_VISIBLE_DEVICES.
        This one is /dev/null's double."""
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError as error:
            raise Unavailable(f"mknod {path} (the GPUs' device files): {error.strerror}") from error

    def write_configuration(self):
        etc = self.folder / "etc"
        texts = {
            "slurm.conf": slurm_conf.slurm_conf(self.folder, self.settings, self.network,
                                                self.addresses),
            "gres.conf": slurm_conf.gres_conf(self.folder, self.settings),
            "cgroup.conf": slurm_conf.cgroup_conf(release()),
            "hosts": slurm_conf.hosts_file(self.addresses, socket.gethostname(),
                                           self.host_address),
        }
        if self.settings.accounting:
            texts["slurmdbd.conf"] = slurm_conf.slurmdbd_conf(self.folder, self.settings,
                                                              self.addresses)
        if self.settings.job_submit:
            texts["job_submit.lua"] = self.settings.job_submit
        for name, text in texts.items():
            (etc / name).write_text(text, encoding="utf-8")
        if self.settings.accounting:
            (etc / "slurmdbd.conf").chmod(0o600)

    def start_everything(self):
        numbers = {CONTROLLER: 2} | {name: 10 + i for i, name in enumerate(self.nodes, 1)}
        self.addresses = {name: self.network.address(n) for name, n in numbers.items()}
        self.write_configuration()
        installing = self.install_database() if self.settings.accounting else None
        with open(self.folder / "log/hosts.out", "ab") as log:
            self.keepers = self.network.add_hosts(numbers, self.folder / "etc/hosts", log)
        self.save()
        if self.settings.users:
            add_users()
        self.start_munged()
        if installing:
            self.start_accounting(installing)
        self.start_slurmctld()
        if self.settings.users and self.settings.accounting:
            self.run("sacctmgr", "-i", "add", "account", "lstest")
            self.run("sacctmgr", "-i", "add", "user", ",".join(USERS), "account=lstest")
        for node in self.nodes:
            self.start_slurmd(node)
        if self.settings.slurmrestd:
            self.start_slurmrestd()
        self.wait_until_idle(30)

    def save(self):
        state = {"index": self.network.index, "settings": asdict(self.settings),
                 "addresses": self.addresses, "keepers": self.keepers, "daemons": self.daemons,
                 "rest_port": self.rest_port, "owner": self.owner}
        new = self.folder / "cluster.json.new"
        new.write_text(json.dumps(state, indent=1), encoding="utf-8")
        new.rename(self.folder / "cluster.json")

    def leave_running(self):
        """The cluster outlives this process; somebody will call stop."""
        self.owner = None
        self.save()

    def stop(self, keep_logs=None):
        """Kills what runs for the cluster and removes what it made, except (in a folder that was
        given, or with keep_logs) etc/, log/ and shared/. Harmless when there is nothing to stop."""
        if self.network:
            kill({pid: begun for pid, begun in self.daemons.values()} | clients_of(self.folder))
            self.network.remove(self.folder, afterwards=remove_users_if_last)
            for pid in [pid for pid, _ in self.daemons.values()] + list(self.keepers.values()):
                reap(pid)
        for name in FOLDERS[KEPT:]:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "cluster.json").unlink(missing_ok=True)
        if self.temporary and not keep_logs:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.network = None
        self.daemons = {}

    # --- daemons

    def on(self, host):
        """What to put before a command so that it runs on a host."""
        return ["nsenter", f"--target={self.keepers[host]}", "--net", "--uts", "--mount"]

    def daemon(self, name, command, host=None, env=None, **popen):
        """Starts a daemon in the foreground, in a session of its own."""
        begun = self.daemons.get(name)
        if begun and start_time(begun[0]) == begun[1]:
            raise RuntimeError(f"{name} is running already")
        with open(self.folder / f"log/{name}.out", "ab") as log:
            process = subprocess.Popen((self.on(host) if host else []) + command, env=self.env(env),
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True, cwd=self.folder, **popen)
        self.daemons[name] = [process.pid, int(stat_of(f"/proc/{process.pid}")[19])]  # start_time() is None of one that has ended
        process.returncode = 0  # reaped by pid, when it is killed
        self.save()

    def signal_daemon(self, name, number):
        pid, begun = self.daemons[name]
        if start_time(pid) != begun:
            raise RuntimeError(f"{name} is not running")
        signal_process(pid, number)

    def kill_daemon(self, name):
        kill(dict([self.daemons[name]]))
        reap(self.daemons[name][0])

    def running(self, name):
        pid, begun = self.daemons.get(name, (0, None))
        return begun is not None and start_time(pid) == begun

    def start_munged(self):
        run = self.folder / "run"
        # force: munged would refuse a folder that others can write to, such as /tmp.
        self.daemon("munged", ["munged", "--foreground", "--force",
                               f"--socket={run}/munge.socket", f"--pid-file={run}/munged.pid",
                               f"--seed-file={run}/munged.seed",
                               f"--key-file={self.folder}/keys/munge.key",
                               f"--log-file={self.folder}/log/munged.log", "--num-threads=2"],
                    CONTROLLER)
        self.until_listening("munged", str(run / "munge.socket"))

    def until_listening(self, name, address):
        """address: a unix socket's path or a TCP port. Looks instead of connecting: the daemons
        would log a broken request."""
        def listening():
            if not self.running(name):
                raise RuntimeError(f"{name} ended; see {self.folder}/log/{name}.out and .log")
            return listens(self.daemons[name][0], address)
        until(listening, 15, f"answer of {name} at {address}")

    def start_slurmctld(self):
        more = ["-i"] if release() >= (23, 11) else []  # else: "fatal: No Assoc usage file"
        self.daemon("slurmctld", ["slurmctld", "-D", *more, "-f", str(self.conf)], CONTROLLER)
        self.until_listening("slurmctld", SLURMCTLD_PORT)

    def kill_slurmctld(self):
        self.kill_daemon("slurmctld")

    def stop_slurmctld(self):
        """It stays in memory but does nothing: connections wait (SIGSTOP)."""
        self.signal_daemon("slurmctld", signal.SIGSTOP)

    def cont_slurmctld(self):
        self.signal_daemon("slurmctld", signal.SIGCONT)

    def start_slurmd(self, node):
        self.daemon(f"slurmd-{node}", ["slurmd", "-D", "-N", node, "-f", str(self.conf)], node)

    def kill_slurmd(self, node):
        """Its steps go on."""
        self.kill_daemon(f"slurmd-{node}")

    def crash(self, node):
        """Everything on the node dies at once, as when its power fails. start_slurmd boots it."""
        found = self.network.pids(node)
        found.pop(self.keepers[node], None)
        kill(found)

    def cut(self, node):
        """Pulls the network cable of a node (or of `ctl`)."""
        self.network.cut(node)

    def join(self, node):
        """Slurm asks DOWN nodes rarely: one without a job to end is idle again within 40 s, or at
        once when its slurmd starts anew (kill_slurmd, start_slurmd)."""
        self.network.join(node)

    # --- accounting, slurmrestd

    def mariadbd(self, *more):
        return ["mariadbd", "--no-defaults", "--user=root", f"--datadir={self.folder}/mysql",
                "--skip-grant-tables", "--skip-networking", "--innodb-log-file-size=8M",
                "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0", *more]

    def install_database(self):
        """The system tables alone, which takes a second (mariadb-install-db also wants programs of
        another package). Who may enter the folder, root, may do anything."""
        sql = self.folder / "mysql/install.sql"
        tables = Path("/usr/share/mysql/mysql_system_tables.sql").read_text(encoding="utf-8")
        sql.write_text(f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}", encoding="utf-8")
        with open(self.folder / "log/mysql-install.out", "ab") as log, open(sql, "rb") as source:
            return subprocess.Popen(self.mariadbd("--bootstrap"), env=self.env(), stdin=source,
                                    stdout=log, stderr=log)

    def start_accounting(self, installing):
        try:
            if installing.wait(timeout=60) != 0:
                raise RuntimeError(f"mariadbd --bootstrap; see {self.folder}/log/mysql-install.out")
        finally:
            installing.kill()
            installing.wait()
        self.daemon("mariadbd", self.mariadbd(f"--socket={self.sql_socket}",
                                              f"--pid-file={self.folder}/run/mysql.pid"),
                    CONTROLLER)
        self.until_listening("mariadbd", self.sql_socket)
        self.start_slurmdbd()
        # Without it slurmctld ends at once: "for some reason we have no TRES".
        self.run("sacctmgr", "-i", "add", "cluster", f"test{self.network.index}")

    @property
    def sql_socket(self):
        return f"{self.folder}/mysql/socket"

    def start_slurmdbd(self):
        self.daemon("slurmdbd", ["slurmdbd", "-D"], CONTROLLER,
                    {"MYSQL_UNIX_PORT": self.sql_socket})
        self.until_listening("slurmdbd", SLURMDBD_PORT)

    def start_slurmrestd(self):
        """As `nobody`: it refuses to be root or SlurmUser. HTTP at rest_url and on rest_socket."""
        nobody = pwd.getpwnam("nobody")
        os.chown(self.folder / "run/rest", nobody.pw_uid, nobody.pw_gid)
        self.rest_socket.unlink(missing_ok=True)
        # Not one of the kernel's choice: whoever asks for any port may be given it before slurmrestd.
        self.rest_port = self.rest_port or 24000 + self.network.index
        listen = [f"127.0.0.1:{self.rest_port}", f"unix:{self.rest_socket}"]
        self.daemon("slurmrestd", ["slurmrestd", "-f", str(self.conf), "-a", "rest_auth/jwt",
                                   *restd_plugins(self.settings), *listen],
                    env={"SLURM_JWT": "daemon"},
                    user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        self.until_listening("slurmrestd", self.rest_port)

    def token(self, user="root", seconds=1800):
        """A JWT for slurmrestd (header X-SLURM-USER-TOKEN; the user in X-SLURM-USER-NAME)."""
        text = self.run("scontrol", "token", f"username={user}", f"lifespan={seconds}").stdout
        return text.strip().removeprefix("SLURM_JWT=")


def sweep():
    """Stops clusters whose owner has died, and removes what has lost its folder."""
    for index, folder in bridges().items():
        if not folder:
            continue
        if not Path(folder).is_dir():
            kill(clients_of(folder))
            Network(index).remove(folder)
        elif (left := SlurmCluster.open(folder)) and left.owner and left.network.index == index:
            pid, begun = left.owner
            if start_time(pid) != begun:
                left.stop()
