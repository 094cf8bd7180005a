"""The connection behind the functions of the ``lockstep`` package."""
# size: the connection and the functions that are methods of it

import base64
import errno
import json
import math
import os
import re
import select
import socket
import sys
import threading
import time
from typing import Any, Iterable, List, Mapping, Optional, Tuple, Union

KEY_BYTES = 256
VALUE_BYTES = 1 << 20
ANSWER_BYTES = 4 << 20
ANSWER_SECONDS = 30.0
WAIT_SECONDS = 86_400.0  # that an agent waits at most
SLACK_SECONDS = 5.0  # that an answer to a timed request may take longer than the time asked for
METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
RESERVED = frozenset(("op", "step", "epoch", "kind", "time"))


class LockstepError(Exception):
    """The agent refused a request or is gone. ``code`` is the protocol's word for it."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class TimedOut(LockstepError):
    """Something did not happen in time; the message names what is missing."""


class NotFound(LockstepError):
    """Nobody has set this key yet."""


class Conflict(LockstepError):
    """The key was set once (or, for a set with once, at all) and has another value."""


class TooLarge(LockstepError, ValueError):
    """A value or a message is larger than its limit, or the generation's keys are full.

    Nothing was changed.
    """


_KINDS = {"timed_out": TimedOut, "not_found": NotFound, "conflict": Conflict, "exhausted": TooLarge}


def _number(name, value):
    """A metric as JSON carries it: an int, a float, or the word for a float that is not finite."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    try:
        value = float(value)  # also one-element tensors and numpy scalars
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {type(value).__name__} is not a number") from None
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


class Client:
    """One connection to the agent. Most scripts use the module's functions instead."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 << 20)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise LockstepError("unavailable", f"the agent's socket {path}: {error}") from None
        # A second handle of the same connection: Python waits up to a socket's timeout even with
        # MSG_DONTWAIT, and requests need a timeout while reports must never wait.
        self._sender = self._socket.dup()
        self._sender.setblocking(False)
        self._lock = threading.Lock()
        self._next_id = 1
        self.dropped = 0

    def close(self):
        """Closes the connection; every later call fails."""
        self._sender.close()
        self._socket.close()

    def send_now(self, message):
        """Sends a one-way message without ever blocking; False if it had to be dropped."""
        data = json.dumps(message, allow_nan=False).encode()
        try:
            self._sender.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return True
        except OSError:
            self.dropped += 1
            return False

    def send_soon(self, message, seconds=1.0):
        """The same, but waits so long for an agent that is behind."""
        data = json.dumps(message, allow_nan=False).encode()
        deadline = time.monotonic() + seconds
        room = select.poll()
        room.register(self._sender, select.POLLOUT)
        while True:
            try:
                self._sender.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return True
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left > 0:
                    room.poll(1000 * left)
                    continue
            except OSError:
                pass
            self.dropped += 1
            return False

    def report(self, step, epoch=None, kind=None, timestamp=None, **metrics):
        """See lockstep.report()."""
        message = {"op": "report", "step": int(step)}
        if epoch is not None:
            message["epoch"] = int(epoch)
        if kind is not None:
            message["kind"] = kind
        message["time"] = time.time() if timestamp is None else float(timestamp)
        for name, value in metrics.items():
            if name in RESERVED or not METRIC_NAME.fullmatch(name):
                raise ValueError(f"{name}: not a metric name ([a-z][a-z0-9_]*, at most 64 long)")
            message[name] = _number(name, value)
        return self.send_now(message)

    def ask(self, request, seconds=ANSWER_SECONDS):
        """Sends a request and returns the agent's answer, or raises LockstepError."""
        deadline = time.monotonic() + seconds
        with self._lock:
            request = dict(request, id=self._next_id)
            self._next_id += 1
            data = json.dumps(request).encode()
            try:
                self._socket.settimeout(seconds)
                self._socket.send(data, socket.MSG_NOSIGNAL)
                answer = self._receive(request["id"], deadline)
            except socket.timeout:
                # Nobody says then what a wait was for; job/model/failure.cpp takes it for an echo.
                waited = "missing: unknown: " if "timeout_ms" in request else ""
                raise TimedOut("timed_out", waited + "the agent does not answer") from None
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    raise TooLarge("exhausted", f"a message of {len(data)} bytes is larger than the "
                                   "socket's buffer (net.core.wmem_max)") from None
                raise LockstepError("unavailable", f"the agent: {error}") from None
        if answer.get("ok") is True:
            return answer
        code = str(answer.get("error", "internal"))
        raise _KINDS.get(code, LockstepError)(code, str(answer.get("message", "")))

    def _receive(self, wanted, deadline):
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            self._socket.settimeout(left)
            data = self._socket.recv(ANSWER_BYTES)
            if not data:
                raise LockstepError("unavailable", "the agent closed the connection")
            answer = json.loads(data)
            # The answer to a request that timed out here may still arrive: skip it. Without an id
            # it is a refusal of a request that was too large to be read: this one.
            if answer.get("id") in (wanted, None):
                return answer

    def set(self, key, value, once=False):
        """See lockstep.set()."""
        request = {"op": "set", "key": _key(key), "value": _value(key, value)}
        self.ask(dict(request, once=True) if once else request)

    def multi_set(self, values, once=False):
        """See lockstep.multi_set()."""
        request = {"op": "multi_set", "keys": [_key(key) for key in values],
                   "values": [_value(key, value) for key, value in values.items()]}
        self.ask(dict(request, once=True) if once else request)

    def cas(self, key, expected, value):
        """See lockstep.cas()."""
        request = {"op": "cas", "key": _key(key), "value": _value(key, value)}
        if expected:
            request["expected"] = _value(key, expected)
        answer = self.ask(request)
        now = answer.get("value")
        return bool(answer["swapped"]), None if now is None else base64.b64decode(now)

    def get(self, key):
        """See lockstep.get()."""
        return base64.b64decode(self.ask({"op": "get", "key": _key(key)})["value"])

    def multi_get(self, keys):
        """See lockstep.multi_get()."""
        answer = self.ask({"op": "multi_get", "keys": [_key(key) for key in keys]})
        return [base64.b64decode(value) for value in answer["values"]]

    def wait(self, keys, timeout):
        """See lockstep.wait()."""
        keys = [keys] if isinstance(keys, str) else list(keys)
        self._wait({"op": "wait", "keys": [_key(key) for key in keys]}, timeout)

    def add(self, key, delta):
        """See lockstep.add()."""
        return int(self.ask({"op": "add", "key": _key(key), "delta": int(delta)})["value"])

    def delete(self, key):
        """See lockstep.delete()."""
        return bool(self.ask({"op": "delete", "key": _key(key)})["deleted"])

    def barrier(self, name, timeout):
        """See lockstep.barrier()."""
        self._wait({"op": "barrier", "name": _key(name)}, timeout)

    def _wait(self, request, timeout):
        timeout = min(timeout, WAIT_SECONDS)
        self.ask(dict(request, timeout_ms=int(timeout * 1000)), timeout + SLACK_SECONDS)


def _key(key):
    if not isinstance(key, str) or not 1 <= len(key.encode()) <= KEY_BYTES:
        raise ValueError(f"{key!r}: a key has 1 to {KEY_BYTES} bytes")
    return key


def _value(key, value):
    """Bytes or text in base 64. The size is looked at first: what is too large costs nothing."""
    data = value.encode() if isinstance(value, str) else value
    size = memoryview(data).nbytes
    if size > VALUE_BYTES:
        raise TooLarge("invalid", f"{key}: the value has {size} bytes, at most {VALUE_BYTES} are allowed")
    return base64.b64encode(data).decode()


_connect_lock = threading.Lock()
_client = None
_client_pid = None


def _after_fork():
    """A forked child has a connection of its own; another thread of the parent may have held the lock."""
    global _connect_lock
    _connect_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _identity():
    """Which rank this process is, as its framework or its launcher says; {} if nobody does."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    except Exception:  # noqa: BLE001 - of a torch that is being imported, or torn down
        pass
    found = {}
    for names in (("RANK", "LOCAL_RANK", "WORLD_SIZE"),
                  ("PADDLE_TRAINER_ID", "PADDLE_RANK_IN_NODE", "PADDLE_TRAINERS_NUM"),
                  ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE")):
        for key, name in zip(("rank", "local_rank", "world_size"), names):
            value = os.environ.get(name, "")
            if value.isdigit():
                found[key] = int(value)
        if found:
            break
    return found


_said = None  # the identity that the agent has been told


def _say_who(client):
    """With launch node the ranks of a node share a socket: each says which one it is."""
    global _said
    if "LOCKSTEP_RANKS_PER_NODE" not in os.environ or (_said is not None and _said[0] is client):
        return
    identity = _identity()
    if identity and client.send_now({"op": "hello", **identity}):
        _said = (client, identity)


def _connection():
    """The process's connection, opened at first use; None without LOCKSTEP_SOCKET."""
    global _client, _client_pid
    path = os.environ.get("LOCKSTEP_SOCKET")
    if not path:
        return None
    with _connect_lock:
        if _client is None or _client_pid != os.getpid():
            _client = Client(path)
            _client_pid = os.getpid()
        _say_who(_client)
        return _client


def _required():
    client = _connection()
    if client is None:
        raise LockstepError("unavailable", "LOCKSTEP_SOCKET is not set: not started by Lockstep")
    return client


sinks = []  # of sinks.py: what takes each report as well, (step, Unix seconds, metrics)
script_reports_loss = False  # then nothing else reports one for it (_auto.py)


def report(step: int, *, epoch: Optional[int] = None, kind: Optional[str] = None, timestamp: Optional[float] = None,
           **metrics: Any) -> bool:
    """Reports the metrics of a finished optimizer step of this rank; never blocks.

    step: finished optimizer steps, from 1. epoch: from 0. kind: "opt" (default), "micro" (one
    micro-batch of an accumulated step) or "epoch". timestamp: Unix seconds, default now.
    metrics: any name of [a-z][a-z0-9_]* with a number; one-element tensors are converted.
    Lockstep knows loss, step_seconds, samples (of this step), data_wait_seconds,
    comm_wait_seconds, busy_seconds, learning_rate, grad_norm, accuracy and more.
    Returns False if the report was dropped (no agent, or it does not read fast enough).
    """
    global script_reports_loss
    if "loss" in metrics:
        script_reports_loss = True
    return send_report(step, epoch=epoch, kind=kind, timestamp=timestamp, **metrics)


def send_report(step: int, *, epoch: Optional[int] = None, kind: Optional[str] = None,
                timestamp: Optional[float] = None, **metrics: Any) -> bool:
    """As report(), of who measures a script."""
    if sinks:
        values = {name: float(_number(name, value)) for name, value in metrics.items()}
        for sink in sinks:
            sink(int(step), time.time() if timestamp is None else float(timestamp), values)
    client = _telling()
    return client is not None and client.report(step, epoch=epoch, kind=kind, timestamp=timestamp, **metrics)


def _telling():
    """The connection for what needs no answer; None if there is none: an agent that is gone ends no training."""
    try:
        return _connection()
    except LockstepError:
        return None


def phase(name: str) -> bool:
    """Says what this rank does now: "init", "train", "eval" or "checkpoint". In the last two no steps are no hang for
    ten times as long, unless the job has watch.hang_seconds. As report() never blocks or fails."""
    client = _telling()
    return client is not None and client.send_now({"op": "phase", "phase": name})


def checkpoint(step: int, path: Union[str, "os.PathLike[str]"]) -> bool:
    """Says that the checkpoint of `step` at `path` is durable. Never fails; waits a second at most for an agent that is
    behind, since unlike a report it must not be lost."""
    message = {"op": "checkpoint", "step": int(step), "path": os.fspath(path)}
    client = _telling()
    return client is not None and client.send_soon(message)


def dropped_reports() -> int:
    """How many one-way messages of this process were dropped."""
    return 0 if _client is None else _client.dropped


def set(key: str, value: Union[bytes, str], once: bool = False) -> None:  # noqa: A001 - the protocol's verb
    """Publishes bytes (or text, as UTF-8; at most 1 MiB) to all ranks of this generation.

    once: the value may never become another one; agents answer further reads of it themselves. The
    same value again is accepted, another one raises Conflict. A value that is too large raises
    TooLarge, which is also a ValueError, before anything is sent.
    """
    _required().set(key, value, once)


def multi_set(values: Mapping[str, Union[bytes, str]], once: bool = False) -> None:
    """Sets all keys of the dictionary `values`, or none of them; see set()."""
    _required().multi_set(values, once)


def cas(key: str, expected: Union[bytes, str, None], value: Union[bytes, str]) -> Tuple[bool, Optional[bytes]]:
    """Sets `key` to `value` if its value is `expected`; None or b"": if there is no such key.

    Returns (swapped, now): whether it did, and the bytes that stand now (None: no such key). A key
    that was set once raises Conflict if it would change.
    """
    return _required().cas(key, expected, value)


def delete(key: str) -> bool:
    """Deletes a key; False if there was none. One that was set once stays: Conflict."""
    return _required().delete(key)


def get(key: str) -> bytes:
    """The bytes some rank published under `key`; raises NotFound if there are none yet."""
    return _required().get(key)


def multi_get(keys: Iterable[str]) -> List[bytes]:
    """The values of several keys in their order; raises NotFound if one is missing."""
    return _required().multi_get(keys)


def wait(keys: Union[str, Iterable[str]], timeout: float = 300.0) -> None:
    """Returns when every key exists; raises TimedOut (naming a missing one) after seconds, 24 hours at most.

    Other threads' key functions and barriers wait meanwhile; those of a Client of their own do not.
    """
    _required().wait(keys, timeout)


def add(key: str, delta: int = 1) -> int:
    """Adds to a shared counter that starts at 0 and returns its new value."""
    return _required().add(key, delta)


def barrier(name: str = "barrier", timeout: float = 300.0) -> None:
    """Returns when every rank of the generation has called it with this name. Other threads wait as with wait()."""
    _required().barrier(name, timeout)
