"""What a job left behind, in Lockstep's events, in Slurm and in the lines that its ranks wrote, and
whether that is what was promised.

A rank's line is `<name> <attempt> <Slurm job>`; appended when it starts, before anything else.
"""

import collections
import json
import urllib.parse
from dataclasses import dataclass, field

# How Lockstep tells of ranks that slurmctld's death ended; time_limit where lockstepd itself was never
# up for the minute after which an agent counts as lost.
TOLD = ("node_lost", "scheduler", "time_limit")
FINAL = ("succeeded", "failed", "cancelled")
# What may still run something; COMPLETING has ended and is being cleared away.
LIVE = ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "SIGNALING", "RESIZING", "REQUEUED",
        "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "STOPPED")


def job_spec(name, starts):
    """One rank that writes its line and ends."""
    script = f'echo "{name} $LOCKSTEP_ATTEMPT $SLURM_JOB_ID" >> {starts}'
    return {"name": name, "framework": "command", "command": ["/bin/bash", "-c", script],
            "resources": {"nodes": 1, "ranks_per_node": 1, "cpus_per_rank": 1,
                          "time_limit": "00:05:00"}}


def read_starts(path):
    """{name: [(attempt, Slurm job), …]}: every start of every rank."""
    out = collections.defaultdict(list)
    if path.exists():
        for line in path.read_text().splitlines():
            name, attempt, allocation = line.split()
            out[name].append((int(attempt), allocation))
    return out


def slurm_rows(cluster, name=None):
    """{name of the Slurm job: [(number, state), …]}, finished ones too."""
    more = ["-n", name] if name else []
    out = cluster.run("squeue", "-h", "-t", "all", "-o", "%i %j %T", *more).stdout
    rows = collections.defaultdict(list)
    for line in out.splitlines():
        number, job, state = line.split()
        rows[job].append((number, state))
    return rows


def listed_jobs(daemon):
    """All pages of GET /v1/jobs, as they come: a job that is there twice is twice in it."""
    out, cursor = [], ""
    while True:
        query = urllib.parse.urlencode({"limit": 500} | ({"cursor": cursor} if cursor else {}))
        page = daemon.get(f"/v1/jobs?{query}")
        out += page["items"]
        cursor = page.get("next_cursor", "")
        if not cursor:
            return out


@dataclass
class Verdict:
    """What is wrong with a job, a line each in the first four, and facts that are no fault."""
    lost: list = field(default_factory=list)      # not there, not ended, or ended without its run
    doubled: list = field(default_factory=list)   # a second rank, claim, end or copy that completed
    left: list = field(default_factory=list)      # an allocation that is still held after the end
    disorder: list = field(default_factory=list)  # its events break a rule
    outage: str = ""         # claimed, then ended because slurmctld forgot it; not a fault
    ran: bool = False        # … after its rank had started
    never_claimed: bool = False  # lost, and could have been handed in again without any danger
    copies: int = 0          # Slurm jobs of it besides the one that ran
    sent_again: int = 0      # intents besides the first one

    @property
    def bad(self):
        return self.lost + self.doubled + self.left + self.disorder


def judge(job, events, starts, rows, outages=()):
    """`starts`: of this job; `rows`: Slurm's, by name; `outages`: (from, to) in which slurmctld's
    death may have cost a job that ran its allocation, in the form of the events' times."""
    out = Verdict()
    kinds = collections.Counter(event["kind"] for event in events)
    ulid = job["id"].removeprefix("ls-").lower()
    judge_starts(out, job, events, starts)
    judge_end(out, job, events, starts, outages)
    judge_order(out, events)
    for attempt in job["attempts"]:
        copies = [row for name, found in rows.items() for row in found
                  if name.endswith(f"{ulid}-a{attempt['number']}")]
        live = [row for row in copies if row[1] in LIVE]
        if live:
            out.left.append(f"still in Slurm although it has ended: {live}")
        fenced = kinds["agent_refused"] + 1
        completed = [row for row in copies if row[1] == "COMPLETED"]
        if len(completed) > fenced:
            out.doubled.append(f"completed copies in Slurm: {completed}, of which "
                               f"{fenced - 1} were fenced")
        out.copies += max(len(copies) - 1, 0)
    out.sent_again = max(kinds["attempt_submitting"] - 1, 0)
    return out


def judge_starts(out, job, events, starts):
    per_attempt = collections.Counter(attempt for attempt, _ in starts)
    for attempt, count in per_attempt.items():
        if count > 1:
            out.doubled.append(f"attempt {attempt} started {count} times, in {starts}")
    if len(starts) > 1 and len(per_attempt) > 1:
        out.doubled.append(f"started in several attempts: {starts}")
    # Without START no rank can have run: what slurmctld took away before it is asked for again.
    released = {event["attempt"] for event in events if event["kind"] == "ranks_released"}
    for attempt in job["attempts"][:-1]:
        if attempt["number"] in released:
            out.doubled.append(f"nobody asked for an attempt after {attempt['number']}: {starts}")
    for number in [attempt["number"] for attempt in job["attempts"]]:
        claims = {event["data"]["allocation"] for event in events
                  if event["kind"] == "agent_claimed" and event["attempt"] == number}
        if len(claims) > 1:
            out.doubled.append(f"attempt {number} claimed by allocations {sorted(claims)}")
        for attempt, allocation in starts:
            if attempt == number and allocation not in claims:
                out.doubled.append(f"a rank ran in allocation {allocation}, claimed: {sorted(claims)}")


def judge_end(out, job, events, starts, outages):
    kinds = collections.Counter(event["kind"] for event in events)
    if job["state"] not in FINAL:
        out.lost.append(f"not ended: {job['state']}, {job.get('pending_reason', '')}")
        return
    if kinds["finished"] != 1:
        out.doubled.append(f"ended {kinds['finished']} times")
    if job["state"] == "succeeded":
        if not starts:
            out.lost.append("succeeded, but its rank never ran")
        return
    during = any(begin <= job["finished_at"] and job["submitted_at"] <= end
                 for begin, end in outages)
    cause = job.get("cause", {})
    text = f"ended as {job['state']}, {cause.get('class')}: {cause.get('message')}"
    if any(event["kind"] == "rank_exited" and event["data"]["exit_code"] == 0 for event in events):
        out.lost.append(f"its rank succeeded, and it {text}")
    elif not kinds["agent_claimed"]:
        out.lost.append(f"nobody asked for that and nobody had claimed it: {text}")
        out.never_claimed = True
    elif during and job["state"] == "failed" and cause.get("class") in TOLD:
        out.outage, out.ran = text, bool(starts)
    else:
        out.lost.append(text)


def judge_order(out, events):
    """An intent before each acknowledgement, a claim before each generation, and order at all."""
    numbers = [event["seq"] for event in events]
    if numbers != sorted(set(numbers)):
        out.disorder.append("events out of order")
    seen = collections.Counter()  # in the attempt
    for event in events:
        kind = event["kind"]
        if kind == "attempt_created":
            seen.clear()
        if kind == "attempt_submitted" and not seen["attempt_submitting"]:
            out.disorder.append("acknowledged without an intent")
        if kind == "generation_started" and not seen["agent_claimed"]:
            out.disorder.append("ranks without a claim")
        if kind == "attempt_submitting" and seen["agent_claimed"]:
            out.disorder.append("handed to Slurm again after it was claimed")
        seen[kind] += 1


def show(name, job_id, verdict, events):
    """The whole story of a job that is not as promised."""
    print(f"\n### {job_id} ({name})")
    for line in verdict.bad:
        print(f"  {line}")
    for event in events:
        data = json.dumps({k: v for k, v in event["data"].items() if k not in ("spec", "warnings")})
        print(f"    {event['seq']:>6} {event['time']} {event['kind']} {data[:200]}")
