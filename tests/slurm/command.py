"""The command line of SlurmCluster: `tests/slurm/cluster`."""

import argparse
import signal
import sys
import time

from cluster import SlurmCluster
from slurm_clients import PREFIX
from slurm_conf import Settings
from slurm_hosts import Unavailable
from slurm_machine import USERS


def arguments():
    parser = argparse.ArgumentParser(prog="cluster", description="A real Slurm on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("start", help="start a cluster, its files in DIR")
    for name, text in (("stop", "stop it"), ("status", "what runs"),
                       ("env", "print `export` lines for a shell")):
        verbs.add_parser(name, help=text).add_argument("folder", metavar="DIR")
    start.add_argument("folder", metavar="DIR")
    for name, kind, text in (("nodes", int, "hosts n1, n2, …"), ("cpus", int, "per node"),
                             ("gpus", int, "per node"),
                             ("min-job-age", int, "seconds a finished job is remembered"),
                             ("cred-expire", int, "seconds a job credential is valid (0: 120)"),
                             ("munge-ttl", int, "seconds a request is valid (0: 300)")):
        default = getattr(Settings, name.replace("-", "_"))
        start.add_argument(f"--{name}", type=kind, default=default, metavar="N",
                           help=f"{text} (default {default})")
    for name, text in (("accounting", "slurmdbd on mariadbd"),
                       ("preemption", "partition main preempts low"),
                       ("quick-loss", "a lost node is DOWN within 15 s, and returns by itself"),
                       ("slurmrestd", "with JWT"),
                       ("users", f"unix users {' and '.join(USERS)}")):
        start.add_argument(f"--{name}", action="store_true", help=text)
    start.add_argument("--no-requeue", dest="requeue", action="store_false",
                       help="a job of a failed node ends instead of starting again")
    start.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE",
                       help="a line of slurm.conf")
    return parser.parse_args()


def print_status(cluster):
    print(f"folder    {cluster.folder}\nmachine   {cluster.host_address}")
    for name, (pid, _) in cluster.daemons.items():
        print(f"{name:<10}{f'pid {pid}' if cluster.running(name) else 'NOT RUNNING'}")
    if cluster.rest_port:
        print(f"rest      {cluster.rest_url} {cluster.rest_socket}")
    states = cluster.node_states()
    for node in cluster.nodes:
        print(f"{node:<10}{cluster.addresses[node]} {states.get(node, 'unknown')}")
    return 0 if all(cluster.running(name) for name in cluster.daemons) else 1


def main():
    options = vars(arguments())
    verb, folder = options.pop("verb"), options.pop("folder")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if verb == "start":
        begun = time.monotonic()
        options["options"] = dict(line.split("=", 1) for line in options["options"])
        try:
            cluster = SlurmCluster(folder, **options).start()
        except Unavailable as reason:
            print(f"cluster: cannot run here: {reason}", file=sys.stderr)
            return 77
        cluster.leave_running()
        print(f"cluster: {cluster.settings.nodes} nodes idle after "
              f"{time.monotonic() - begun:.1f} s\nexport SLURM_CONF={cluster.conf}")
        return 0
    cluster = SlurmCluster.open(folder)
    if not cluster:
        print(f"cluster: none in {folder}", file=sys.stderr)
        return 0 if verb == "stop" else 3
    if verb == "stop":
        cluster.stop()
    elif verb == "env":
        print(f"export SLURM_CONF={cluster.conf}")
        if PREFIX:
            print(f"export PATH={PREFIX}/sbin:{PREFIX}/bin:$PATH")
        print(f"export LOCKSTEP_TEST_HOST_ADDRESS={cluster.host_address}")
        if cluster.rest_port:
            print(f"export LOCKSTEP_TEST_REST_URL={cluster.rest_url}")
    else:
        return print_status(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
