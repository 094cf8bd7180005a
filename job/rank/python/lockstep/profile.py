"""What ranks of this node do for some seconds, while they train:

    python3 -m lockstep.profile [--job ID] [--ranks 0,3-5] [--seconds 5] [--output DIR]

Run it on the node of the ranks, as their user (with Slurm: ``srun --jobid N --overlap -w NODE python3 -m
lockstep.profile``). Nothing is prepared in the script and nothing is stopped. For each Python process of the ranks
chosen it writes into the folder

    rank-00000.<pid>.stacks.txt       where Python was, every 10 ms: folded stacks, for flamegraph.pl and speedscope
    rank-00000.<pid>.trace.json.gz    for Perfetto and chrome://tracing, with torch: whole steps; with JAX on processors: so
                                      many seconds, or fewer if there are many operations
    rank-00000.<pid>.operations.txt   with these: the operations that took longest

and says what there is not, and why: a process that has imported neither has no trace, nor has one of torch's in which no
optimizer's step ends within 10 seconds, nor one that profiles itself. One that does not run Python meanwhile does not
answer. lockstep-train writes a trace of its steps and the operations that took longest; it has no Python whose stacks
could be written.

Exit: 0 something was written; 1 nothing was; 2 the question was wrong.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Set

__all__ = ["main"]

_PROCESSES = 16  # asked at most
_MORE_SECONDS = 40.0  # beside twice the time asked for: a first step, a last one, the files
_FILE_BYTES = 64 << 20
_NAMES = ("stacks.txt", "trace.json.gz", "operations.txt")
_RANK_NAMES = ("LOCKSTEP_RANK", "RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


class _Process(NamedTuple):
    pid: int
    rank: int
    job: str
    folder: str

    def path(self, name: str) -> str:
        return os.path.join(self.folder, f"profile.{self.pid}.{name}")

    @property
    def words(self) -> str:
        return f"rank {self.rank if self.rank >= 0 else 'unknown'}, process {self.pid}"


def _catches(pid: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGURG - 1) & 1)
    return False


def _processes() -> Iterator[_Process]:
    """This user's processes of ranks that the hooks are in, or that are lockstep-train.

    A fork has its parent's file, and is left out."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        pid = int(name)
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = [word.decode("utf-8", "replace").partition("=") for word in file.read().split(b"\0")]
            environment = {key: value for key, _, value in words}
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"multiprocessing.resource_tracker" in file.read():
                    continue  # a helper, which does nothing of the script's
            folder = os.path.dirname(environment.get("LOCKSTEP_SOCKET", ""))
            # The hooks of Python, or lockstep-train.
            offered = any(os.path.exists(os.path.join(folder, f"{kind}.{pid}")) for kind in ("stacks", "spans"))
            if not folder or not offered or not _catches(pid):
                continue
        except (OSError, ValueError):
            continue  # it has ended
        rank = next((int(environment[key]) for key in _RANK_NAMES if environment.get(key, "").isdigit()), -1)
        yield _Process(pid, rank, environment.get("LOCKSTEP_JOB_ID", ""), folder)


def _ranks(text: str) -> Set[int]:
    out: Set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(first) > 6 or len(last) > 6:
            raise ValueError(f"--ranks: {word!r} is no rank; as in 0,3-5")
        if int(last or first) < int(first):
            raise ValueError(f"--ranks: {word!r} has its end before its beginning")
        out.update(range(int(first), int(last or first) + 1))
    return out


def _ask(process: _Process, seconds: float, which: str, until: float) -> str:
    """Why it cannot be asked; "" = it has been. Of one who asked and was killed the question stays until its time is over."""
    path = process.path("ask")
    try:
        with open(path, encoding="utf-8") as file:
            theirs = float(json.load(file)["until"])
        if time.monotonic() < theirs:
            return "somebody else has asked for a profile of it, which is not done yet"
        os.unlink(path)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, as it should be
    try:
        for name in ("done", *_NAMES):
            if os.path.lexists(process.path(name)):
                os.unlink(process.path(name))
        question = {"id": which, "seconds": seconds, "until": until}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(question))
        os.kill(process.pid, signal.SIGURG)
    except FileExistsError:
        return "somebody else has asked for a profile of it, which is not done yet"
    except OSError as error:
        _clear(process)
        gone = isinstance(error, (ProcessLookupError, FileNotFoundError))
        return "it has ended" if gone else f"it cannot be asked: {error}"
    return ""


def _answer(process: _Process, which: str) -> Optional[Dict[str, object]]:
    try:
        with open(process.path("done"), encoding="utf-8") as file:
            done = json.load(file)
        return done if done["id"] == which else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _collect(process: _Process, done: Dict[str, object], folder: str) -> int:
    written = 0
    rank = f"{process.rank:05d}" if process.rank >= 0 else "unknown"
    files = done.get("files")
    for name in files if isinstance(files, list) else []:
        path = process.path(name)
        if name not in _NAMES or os.path.islink(path) or os.path.getsize(path) > _FILE_BYTES:
            continue
        target = os.path.join(folder, f"rank-{rank}.{process.pid}.{name}")
        try:
            shutil.copyfile(path, target)
        except OSError as error:
            print(f"{process.words}: no {target}: {error.strerror}", file=sys.stderr)
            continue
        print(f"{process.words}: {target}")
        written += 1
    missing = done.get("missing")
    for gap in missing if isinstance(missing, list) else []:
        print(f"{process.words}: no {gap['what']}: {gap['why']}", file=sys.stderr)
    return written


def _wait(asked: Dict[_Process, str], until: float, folder: str) -> int:
    written = 0
    while asked:
        for process, which in list(asked.items()):
            who = process.words
            done = _answer(process, which)
            if done is not None:
                written += _collect(process, done, folder)
            elif not os.path.exists(f"/proc/{process.pid}"):
                print(f"{who}: no profile: it has ended meanwhile", file=sys.stderr)
            elif time.monotonic() >= until:
                print(f"{who}: no profile: it did not come to run Python, or to end a step, in time: "
                      "lockstep evidence --now tells where it is", file=sys.stderr)
            else:
                continue
            del asked[process]
            _clear(process)
        time.sleep(0.05)
    return written


def _clear(process: _Process) -> None:
    for name in ("ask", "done", *_NAMES):
        try:
            os.unlink(process.path(name))
        except OSError:
            pass


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m lockstep.profile",
                                     description="What ranks of this node do for some seconds, while they train.")
    parser.add_argument("--job", default="", help="only of this job")
    parser.add_argument("--ranks", default="", help="0,3-5; all of this node if not given")
    parser.add_argument("--seconds", type=float, default=5.0, help="1 to 60; 5 if not given")
    parser.add_argument("--output", default=".", help="the folder for the files; this one if not given")
    options = parser.parse_args(arguments)
    try:
        if not 1 <= options.seconds <= 60:
            raise ValueError("--seconds: 1 to 60")
        wanted = _ranks(options.ranks) if options.ranks else None
        found = sorted(one for one in _processes() if options.job in ("", one.job))
        if not options.job and len({one.job for one in found}) > 1:
            raise ValueError("--job: " + ", ".join(sorted({one.job for one in found})) + " have ranks here")
        here = {one.rank for one in found}
        absent = sorted((wanted or set()) - here)
        if absent or not found:
            raise ValueError(f"there is no Python process of rank {absent[0]} here" if absent
                             else "there is no Python process of a rank here")
    except ValueError as error:
        print(f"lockstep.profile: {error}", file=sys.stderr)
        return 2
    chosen = [one for one in found if wanted is None or one.rank in wanted]
    if len(chosen) > _PROCESSES:
        print(f"the first {_PROCESSES} of {len(chosen)} processes are asked; --ranks chooses", file=sys.stderr)
    try:
        os.makedirs(options.output, exist_ok=True)
    except OSError as error:
        print(f"lockstep.profile: --output: {error}", file=sys.stderr)
        return 2
    until = time.monotonic() + 2 * options.seconds + _MORE_SECONDS
    asked: Dict[_Process, str] = {}
    try:
        for process in chosen[:_PROCESSES]:
            which = os.urandom(8).hex()
            why = _ask(process, options.seconds, which, until)
            if why:
                print(f"{process.words}: no profile: {why}", file=sys.stderr)
            else:
                asked[process] = which
        return 0 if _wait(asked, until, options.output) else 1
    finally:
        for process in asked:
            _clear(process)


if __name__ == "__main__":
    sys.exit(main())
