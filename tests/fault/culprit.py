"""Does Lockstep name the rank that is to blame? Ten kinds of failure, nine of hang; see tests/fault/run."""

import collections
import re
import tempfile
import time

import harness

SCRIPTS = harness.FIXTURES / "culprit"
# kind -> what the exception must be; None: there is none.
FAILURES = {"plain": "ValueError", "finally": "ValueError", "record": "ValueError", "thread": "ValueError",
            "spawn": "ValueError", "torchrun": "ValueError", "exit": "SystemExit", "abort": None, "oom": None,
            "loader": "AssertionError"}
# kind -> what must be in the message.
HANGS = {"lock": "wait_for_data_loader", "sleep": "train.py", "spin": "spin", "hang-loader": "", "stop": "is stopped",
         "order": "all_gather", "missing": "recv",
         # The same under a launcher, whose children are the ranks.
         "spawn-lock": "wait_for_data_loader", "torchrun-lock": "wait_for_data_loader"}
NODE_LAUNCH = ("spawn", "torchrun", "spawn-lock", "torchrun-lock")
HANG_SECONDS = 3


def spec(kind, rank, step, python=None, nodes=2, per_node=2):
    """The job of one run: two nodes of two ranks, with rank `rank` to blame."""
    python = python or harness.PYTHON
    train = [str(SCRIPTS / "train.py"), kind, str(rank), str(step)]
    job = {"name": f"culprit-{kind}", "framework": "pytorch", "command": [python, *train],
           "resources": {"nodes": nodes, "ranks_per_node": per_node},
           "recovery": {"max_restarts": 0, "on": ["hang"]}, "watch": {"hang_seconds": HANG_SECONDS}}
    if kind in NODE_LAUNCH:
        job["launch"] = "node"
    if kind.startswith("torchrun"):
        job["command"] = [python, str(SCRIPTS / "torchrun.py"), "--master_port", "{master_port}", *train]
    return job


def blamed(job, per_node=2):
    """(rank, or None if only its node is told; node's number; cause)."""
    cause = job.get("cause", {})
    node = cause.get("node", "")
    number = re.search(r"-n(\d+)$", node)
    return cause.get("rank"), int(number.group(1)) if number else None, cause


def verdict(kind, culprit, daemon, job, per_node=2):
    """What is wrong with the answer; "" if it is right."""
    rank, node, cause = blamed(job)
    if job["state"] != "failed":
        return f"the job is {job['state']}"
    every_rank = len(daemon.get(f"/v1/jobs/{job['id']}/ranks")["items"]) == 2 * per_node
    expected = culprit if every_rank else culprit // per_node
    if rank != expected or node != culprit // per_node:
        return f"rank {rank} on node {node}, not {expected}: {cause.get('message')}"
    if kind in HANGS:
        return "" if cause["class"] == "hang" and HANGS[kind] in cause["message"] else f"{cause['message']}"
    told = cause.get("exception", {}).get("type")
    if FAILURES[kind] and (told or "SystemExit") != FAILURES[kind]:
        return f"it is blamed for {told}: {cause.get('message')}"
    return ""


def run_here(daemon, kind, culprit, step, python=None):
    """(what is wrong or "", the job)."""
    job_id = daemon.submit(spec(kind, culprit, step, python))["id"]
    job = daemon.wait_state(job_id, harness.FINAL, 240)
    wrong = verdict(kind, culprit, daemon, job)
    return wrong, job


def runs_of(kinds, runs):
    """Kinds in turn, so that a moment of load does not meet one kind alone; ranks and steps in turn."""
    return [(kind, number % 4, 2 + number % 5) for number in range(runs) for kind in kinds]


def table(title, wrong, total):
    print(f"\n{title}")
    for kind, count in total.items():
        print(f"  {kind:12} {len(wrong[kind]):3} wrong of {count}")
    print(f"  {'all':12} {sum(map(len, wrong.values())):3} wrong of {sum(total.values())}", flush=True)


def campaign(options, kinds, runs, title):
    wrong, total = collections.defaultdict(list), collections.Counter()
    with tempfile.TemporaryDirectory(prefix="lockstep-culprit-") as folder:
        daemon = harness.Daemon(folder)
        daemon.start()
        try:
            for kind, culprit, step in runs_of(kinds, runs):
                if time.monotonic() > options.until:
                    print("the time is over")
                    break
                why, job = run_here(daemon, kind, culprit, step, options.python)
                total[kind] += 1
                if why:
                    wrong[kind].append(why)
                    print(f"WRONG {kind} rank {culprit} step {step}: {why}", flush=True)
                    print("\n".join(f"    {one}" for one in job["cause"].get("others", [])), flush=True)
        finally:
            daemon.clean_up()
    table(title, wrong, total)
    return sum(map(len, wrong.values()))


def main(options):
    import culprit_peers  # which imports this module
    culprit_peers.check_names(options.peers)
    options.until = time.monotonic() + options.minutes * 60
    failures = [kind for kind in FAILURES if not options.kinds or kind in options.kinds]
    hangs = [kind for kind in HANGS if not options.kinds or kind in options.kinds]
    bad = 0
    if options.runs and failures:
        bad += campaign(options, failures, options.runs, "Lockstep, the rank that failed")
    if options.hangs and hangs:
        bad += campaign(options, hangs, options.hangs, "Lockstep, the rank that hangs")
    if options.peer_runs:
        culprit_peers.main(options, options.peer_runs)
    return 1 if bad else 0
