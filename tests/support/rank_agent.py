#!/usr/bin/python3
"""A stand-in for lockstep-agent on one node, for tests and benchmarks of what runs inside a rank.

It serves the rank protocol (reports, notices, keys, barrier) on one Unix SEQPACKET socket per rank
and, as a program, starts the ranks too:

    rank_agent.py --ranks 2 --reports FILE -- build/bin/lockstep-train --config train.json

It exits with the first exit code of a rank that is not 0. Standard library only.
"""

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


class RankAgent:
    """Serves `world` ranks; `reports` collects (rank, message) of every one-way message."""

    def __init__(self, directory, world):
        self.world = world
        self.reports = []
        self._values = {}
        self._once = set()  # keys whose value may not change any more
        self._barriers = {}
        self._waiters = []  # [deadline, connection, id, missing()]
        self._connections = {}
        self._listeners = {}
        self._stop_read, self._stop_write = os.pipe()
        self.paths = [os.path.join(directory, f"rank{rank}.sock") for rank in range(world)]
        for rank, path in enumerate(self.paths):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(path)
            listener.listen(4)
            self._listeners[listener.fileno()] = (listener, rank)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        """Ends the server after it has read what was already sent."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        for listener, _ in self._listeners.values():
            listener.close()
        for connection, _ in self._connections.values():
            connection.close()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()

    def _serve(self):
        stopping = False
        while True:
            fds = [self._stop_read, *self._listeners, *self._connections]
            if stopping:
                fds = list(self._connections)
            wait = min([max(0.0, w[0] - time.monotonic()) for w in self._waiters], default=None)
            ready, _, _ = select.select(fds, [], [], 0 if stopping else wait)
            if stopping and not ready:
                return
            for fd in ready:
                if fd == self._stop_read:
                    stopping = True
                elif fd in self._listeners:
                    listener, rank = self._listeners[fd]
                    connection, _ = listener.accept()
                    self._connections[connection.fileno()] = (connection, rank)
                elif fd in self._connections:
                    self._read(fd)
            self._expire()

    def _read(self, fd):
        connection, rank = self._connections[fd]
        try:
            data = connection.recv(4 << 20)
        except OSError:
            data = b""
        if not data:
            connection.close()
            del self._connections[fd]
            self._waiters = [w for w in self._waiters if w[1] is not connection]
            return
        message = json.loads(data)
        if "id" in message:
            self._request(connection, rank, message)
            self._wake()
        else:
            self.reports.append((rank, message))

    def _request(self, connection, rank, message):
        op, ident = message["op"], message["id"]
        good = {"id": ident, "ok": True}
        if op in ("set", "multi_set"):
            pairs = (dict(zip(message["keys"], message["values"])) if op == "multi_set"
                     else {message["key"]: message["value"]})
            once = message.get("once", False)
            changed = [key for key, value in pairs.items()
                       if (once or key in self._once) and self._values.get(key, value) != value]
            if changed:
                self._send(connection, {"id": ident, "ok": False, "error": "conflict",
                                        "message": f"{changed[0]}: was set once, to another value"})
                return
            self._values.update(pairs)
            self._once.update(pairs if once else ())
            self._send(connection, good)
        elif op == "cas":
            swapped = self._values.get(message["key"]) == message.get("expected")
            if swapped:
                self._values[message["key"]] = message["value"]
            self._send(connection, dict(good, swapped=swapped, value=self._values.get(message["key"])))
        elif op == "get":
            self._values_answer(connection, good, [message["key"]], single=True)
        elif op == "multi_get":
            self._values_answer(connection, good, message["keys"], single=False)
        elif op == "add":
            value = self._values.get(message["key"], 0) + message["delta"]
            self._values[message["key"]] = value
            self._send(connection, dict(good, value=value))
        elif op == "wait":
            keys = message["keys"]
            self._wait(connection, message, lambda: [k for k in keys if k not in self._values])
        elif op == "barrier":
            arrived = self._barriers.setdefault(message["name"], set())
            arrived.add(rank)
            self._wait(connection, message,
                       lambda: [f"rank {r}" for r in range(self.world) if r not in arrived])
        else:
            self._send(connection, {"id": ident, "ok": False, "error": "invalid",
                                    "message": f"unknown operation {op}"})

    def _values_answer(self, connection, good, keys, single):
        missing = [key for key in keys if key not in self._values]
        if missing:
            self._send(connection, {"id": good["id"], "ok": False, "error": "not_found",
                                    "message": f"no key {missing[0]}"})
        elif single:
            self._send(connection, dict(good, value=self._values[keys[0]]))
        else:
            self._send(connection, dict(good, values=[self._values[key] for key in keys]))

    def _wait(self, connection, message, missing):
        deadline = time.monotonic() + message["timeout_ms"] / 1000
        self._waiters.append([deadline, connection, message["id"], missing])

    def _wake(self):
        for waiter in [w for w in self._waiters if not w[3]()]:
            self._waiters.remove(waiter)
            self._send(waiter[1], {"id": waiter[2], "ok": True})

    def _expire(self):
        now = time.monotonic()
        for waiter in [w for w in self._waiters if w[0] <= now]:
            self._waiters.remove(waiter)
            self._send(waiter[1], {"id": waiter[2], "ok": False, "error": "timed_out",
                                   "message": f"missing: {waiter[3]()[0]}"})

    @staticmethod
    def _send(connection, message):
        try:
            connection.send(json.dumps(message).encode())
        except OSError:
            pass  # the rank is gone; its end shows in its exit status


def rank_environment(agent, rank, checkpoints, generation=1):
    """The variables that a rank of a one-node job gets."""
    world = str(agent.world)
    return dict(
        os.environ, RANK=str(rank), WORLD_SIZE=world, LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=world, GROUP_RANK="0", NODE_RANK="0", NNODES="1",
        LOCKSTEP_JOB_ID="ls-00000000000000000000000000", LOCKSTEP_ATTEMPT="1",
        LOCKSTEP_GENERATION=str(generation), LOCKSTEP_SOCKET=agent.paths[rank],
        LOCKSTEP_CHECKPOINT_DIR=checkpoints, LOCKSTEP_ADDRESS="127.0.0.1",
        OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))


def run(command, ranks, checkpoints, log_directory=None):
    """Runs the command as `ranks` ranks; (exit codes by rank, reports)."""
    with tempfile.TemporaryDirectory(prefix="lockstep-agent-") as directory:
        with RankAgent(directory, ranks) as agent:
            processes = []
            for rank in range(ranks):
                out = None
                if log_directory is not None:
                    out = open(os.path.join(log_directory, f"{rank}.log"), "wb")
                elif rank > 0:
                    out = subprocess.DEVNULL
                processes.append(subprocess.Popen(
                    command, env=rank_environment(agent, rank, checkpoints), stdout=out))
            told = []

            def end(*given):
                told.append(given)
                for process in processes:
                    process.terminate()
            before = signal.signal(signal.SIGTERM, end)
            try:
                codes = [process.wait() for process in processes]
            finally:
                signal.signal(signal.SIGTERM, before)
            if told and callable(before):
                before(*told[0])
        return codes, agent.reports


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--checkpoints", default="")
    parser.add_argument("--logs", help="folder for <rank>.log; otherwise rank 0 prints here")
    parser.add_argument("--reports", help="file for the reports, one JSON object a line")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    codes, reports = run(options.command, options.ranks, options.checkpoints, options.logs)
    if options.reports:
        with open(options.reports, "w", encoding="utf-8") as out:
            for rank, message in reports:
                out.write(json.dumps(dict(message, rank=rank)) + "\n")
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
