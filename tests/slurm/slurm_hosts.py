"""Several hosts on one machine, for SlurmCluster (cluster.py).

Each host is a network namespace with one address on a bridge of its own, and a keeper process that
holds the host's name (UTS namespace) and its /etc/hosts (mount namespace). Processes, files and
/sys are the machine's. Nothing is routed: all addresses stay inside the machine.

The bridge is the claim. Its name `lsbr<index>` can exist once, so creating it is what makes the
subnet and all names with that index ours; its alias says which folder the cluster lives in.
"""

import contextlib
import fcntl
import ipaddress
import json
import os
import signal
import subprocess
import time
from pathlib import Path

BRIDGE = "lsbr"
PATIENCE = float(os.environ.get("LOCKSTEP_TEST_PATIENCE", "3"))
NAMESPACES = Path("/run/netns")


class Unavailable(Exception):
    """This machine cannot do it (a program or a right is missing): a test skips, aloud."""


def start_time(pid):
    """When a process began, in clock ticks since boot; None if it has ended. A zombie has, unless it
    has threads: the leader of a killed process is one while another thread is still in an fsync, and
    its sockets are open until that has ended too. Each thread is asked for its state: stat counted one, and
    its folder was listed, a minute after the last had gone."""
    try:
        fields = stat_of(f"/proc/{pid}")
        ended = fields[0] == "X" or (fields[0] == "Z" and not lives_on(pid))
    except OSError:
        return None
    return None if ended else int(fields[19])


def stat_of(folder):
    """Of a process or thread, from its state on."""
    return Path(f"{folder}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def lives_on(pid):
    """Whether a thread of a process has not ended."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if stat_of(task)[0] not in "ZX":
                return True
        except OSError:  # it has, since it was listed
            continue
    return False


def signal_process(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def reap(pid):
    """Collects a process that ended, if it was our child."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def listens(pid, address):
    """Whether a socket listens, on the process's host: at a TCP port or a unix socket's path."""
    def rows(table):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        return [line.split() for line in lines[1:]]
    if isinstance(address, str):
        # Flag 00010000: listening (include/linux/net.h, __SO_ACCEPTCON).
        return any(row[3] == "00010000" and row[-1] == address for row in rows("unix"))
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == address
               for row in rows("tcp") + rows("tcp6"))


def until(question, seconds, what, pause=0.02):
    """The first true answer; TimeoutError names `what` when there is none in time, which is as
    much longer as the other tests' deadlines (harness.PATIENCE)."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} after {seconds} s")
        time.sleep(pause)


def kill(processes):
    """SIGKILL for all of {pid: start time}, and waits until they have ended."""
    for pid, begun in processes.items():
        if start_time(pid) == begun:
            signal_process(pid, signal.SIGKILL)

    def left():
        return [pid for pid, begun in processes.items() if start_time(pid) == begun]

    try:
        until(lambda: not left(), 20, "end of the killed processes")
    except TimeoutError as error:
        # One in D waits for a disk, say in an fsync behind what all others write.
        states = {pid: threads_of(pid) for pid in left()}
        raise TimeoutError(f"{error}: {states}") from None


def threads_of(pid):
    """["munged Z", "munged D jbd2_log_wait_commit"]: name, state and, as far as the kernel says, in what each thread waits."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        try:
            name, _, rest = (task / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
            waits = (task / "wchan").read_text(encoding="utf-8")
        except OSError:
            continue
        found.append(f"{name} {rest.split()[0]} {waits}".strip(" 0"))
    return found


def ip(*arguments, batch=None, check=True):
    """Runs ip(8); the words may be one string. `batch`: lines for `ip -batch`."""
    words = [word for argument in arguments for word in str(argument).split()]
    run = subprocess.run(["ip", *words] + (["-batch", "-"] if batch else []), check=False,
                         input="\n".join(batch) if batch else None, capture_output=True, text=True)
    if check and run.returncode != 0:
        raise Unavailable(f"ip {' '.join(words)}{' '.join(batch or [])}: {run.stderr.strip()}")
    return run


def bridges():
    """{index: folder} of the clusters on this machine; "" while one is being claimed."""
    found = {}
    for link in json.loads(ip("-json link show type bridge").stdout or "[]"):
        index = link.get("ifname", "").removeprefix(BRIDGE)
        if link.get("ifname", "").startswith(BRIDGE) and index.isdecimal():
            found[int(index)] = link.get("ifalias", "")
    return found


def subnet(index):
    """198.18.0.0/15 is set aside for test networks (RFC 2544): no machine is really there."""
    return ipaddress.ip_network(f"198.{18 + index // 256}.{index % 256}.0/24")


@contextlib.contextmanager
def claims_lock():
    """One process at a time claims, or removes what it found to be its own."""
    descriptor = os.open("/run", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Network:
    """The bridge and the hosts of one cluster. Not thread-safe."""

    def __init__(self, index):
        self.index = index
        self.bridge = f"{BRIDGE}{index}"
        self.host_address = self.address(1)

    @classmethod
    def claim(cls, folder):
        with claims_lock():
            return cls.claim_locked(folder)

    @classmethod
    def claim_locked(cls, folder):
        used = [ipaddress.ip_network(route["dst"]) for route in
                json.loads(ip("-4 -json route show table all").stdout or "[]")
                if route["dst"] != "default"]
        for index in range(512):
            if any(subnet(index).overlaps(network) for network in used):
                continue
            made = ip(f"link add {BRIDGE}{index} type bridge forward_delay 0", check=False)
            if made.returncode == 0:
                break
            if "File exists" not in made.stderr:
                raise Unavailable("a bridge is needed: ip link add … type bridge: "
                                  + made.stderr.strip())
        else:
            raise Unavailable("all 512 subnets of 198.18.0.0/15 are taken")
        network = cls(index)
        subprocess.run(["ip", "link", "set", network.bridge, "alias", str(folder)], check=True)
        ip(f"address add {network.host_address}/24 dev {network.bridge}")
        ip(f"link set {network.bridge} up")
        return network

    def address(self, number):
        return str(subnet(self.index)[number])

    def namespace(self, name):
        return f"ls{self.index}-{name}"

    def add_hosts(self, numbers, hosts_file, log):
        """Makes hosts {name: last number of its address}; returns {name: pid of its keeper}."""
        keepers = {}
        for name, number in numbers.items():
            link = self.namespace(name)
            ip(batch=[f"netns add {link}",
                      f"link add {link} type veth peer name eth0 netns {link}",
                      f"link set {link} master {self.bridge} up"])
            ip("-n", link, batch=["link set lo up", "link set eth0 up",
                                  f"address add {self.address(number)}/24 dev eth0"])
            # The mounts of the machine that come and go later do so here too (slave); ours do not
            # leave the host.
            keepers[name] = subprocess.Popen(
                ["nsenter", f"--net={NAMESPACES / link}",
                 "unshare", "--uts", "--mount", "--propagation", "slave", "sh", "-c",
                 'hostname "$1" && mount --bind "$2" /etc/hosts && echo ready && '
                 "exec sleep infinity >/dev/null", "sh", name, str(hosts_file)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True)
        for name, keeper in keepers.items():
            ready = keeper.stdout.readline()
            keeper.stdout.close()
            if ready != "ready\n":
                raise Unavailable(f"host {name}: no namespaces for its name and mounts: "
                                  + Path(log.name).read_text(encoding="utf-8").strip())
            keeper.returncode = 0  # reaped by pid, at stop
        return {name: keeper.pid for name, keeper in keepers.items()}

    def cut(self, name):
        ip(f"link set {self.namespace(name)} down")

    def join(self, name):
        """Also forgets that the host did not answer: the next connection is made at once."""
        ip(f"link set {self.namespace(name)} up")
        ip(f"neigh flush dev {self.bridge}", check=False)
        for other in self.names():
            ip(f"-n {self.namespace(other)} neigh flush dev eth0", check=False)

    def pids(self, name):
        """Every process on a host, the keeper too: {pid: start time}."""
        try:
            wanted = (NAMESPACES / self.namespace(name)).stat()
        except FileNotFoundError:
            return {}
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                seen = (entry / "ns/net").stat()
            except OSError:
                continue
            begun = start_time(entry.name)
            if (seen.st_ino, seen.st_dev) == (wanted.st_ino, wanted.st_dev) and begun is not None:
                found[int(entry.name)] = begun
        return found

    def names(self):
        prefix = self.namespace("")
        if not NAMESPACES.is_dir():
            return []
        return sorted(entry.name.removeprefix(prefix) for entry in NAMESPACES.iterdir()
                      if entry.name.startswith(prefix))

    def remove(self, folder, afterwards=lambda: None):
        """If the claim is still the folder's: kills everything on the hosts and removes them. The
        bridge goes last. `afterwards` runs before anybody else can claim or remove."""
        with claims_lock():
            if bridges().get(self.index) != str(folder):
                return
            for name in self.names():
                while found := self.pids(name):
                    kill(found)
                ip("link del", self.namespace(name), check=False)
                ip("netns del", self.namespace(name), check=False)
            ip("link del", self.bridge, check=False)
            afterwards()
