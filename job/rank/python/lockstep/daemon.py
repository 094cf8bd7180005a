"""lockstepd from a program: submit, wait, logs, series, cancel. Standard library only.

    daemon = lockstep.Daemon()                       # as the command line finds it
    job = daemon.submit({"name": "first", "framework": "native"})
    job.wait()                                       # raises JobFailed with the cause
    losses = job.series("loss")                      # {rank: Series}; Series.to_numpy(), .to_pandas()

``AsyncDaemon`` has the same functions to await. Any thread may use a Daemon: each request is a connection of its own.
"""

import asyncio
import hashlib
import http.client
import json
import os
import pathlib
import ssl
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Tuple, Union

FINAL = ("succeeded", "failed", "cancelled")
DEFAULT_URL = "http://127.0.0.1:8470"
_POLL_SECONDS = (0.05, 2.0)  # the first and the longest pause between two looks at a job


class DaemonError(Exception):
    """lockstepd cannot be reached, or said no: ``status`` and ``problem`` (RFC 9457) say why.

    ``status`` is 0 if there was no answer.
    """

    def __init__(self, message: str, status: int = 0, problem: Optional[dict] = None):
        super().__init__(message)
        self.status = status
        self.problem = problem or {}

    @property
    def errors(self) -> List[dict]:
        """[{"pointer": "/resources/nodes", "message": "…"}]: the fields that are wrong."""
        return self.problem.get("errors", [])


class JobFailed(Exception):
    """A job has not succeeded. ``job`` is its document, ``cause`` what ended it."""

    def __init__(self, job: dict):
        self.job = job
        self.cause = job.get("cause") or {}
        words = self.cause.get("message", "")
        super().__init__(f"{job.get('name', '')} ({job.get('id', '')}) {job.get('state', '')}: {words}")


@dataclass
class Series:
    """One rank's values of one metric. ``x`` are steps, or Unix seconds where a series was asked for by time.

    Where there are more values than points were asked for, each point stands for several: ``values`` are the last
    of them, ``lowest`` and ``highest`` their bounds.
    """

    rank: int
    metric: str
    x: List[float] = field(default_factory=list)
    values: List[float] = field(default_factory=list)
    lowest: List[float] = field(default_factory=list)
    highest: List[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.x)

    def to_numpy(self) -> Any:
        """An array of shape (n, 2): x and values. Needs NumPy."""
        import numpy

        return numpy.column_stack([numpy.asarray(self.x, float), numpy.asarray(self.values, float)])

    def to_pandas(self) -> Any:
        """A pandas.Series of the values over x. Needs pandas."""
        import pandas

        return pandas.Series(self.values, index=pandas.Index(self.x, name="step"), name=f"{self.metric} of {self.rank}")


def _value(number: Any) -> float:
    """JSON has no words for what is not finite: they are texts."""
    return float("nan") if number is None else float(number)


class Job:
    """A job of a daemon; its functions ask the daemon each time."""

    def __init__(self, daemon: "Daemon", id: str):  # noqa: A002 - what it is called everywhere
        self.daemon = daemon
        self.id = id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def get(self) -> dict:
        """The job's document."""
        return self.daemon.get(self.id)

    @property
    def state(self) -> str:
        return self.get()["state"]

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.state in FINAL

    def wait(self, timeout: Optional[float] = None, check: bool = True) -> dict:
        """The document once it has ended; TimeoutError after `timeout` seconds, JobFailed unless it succeeded
        (check=False: the document anyway)."""
        return self.daemon.wait(self.id, timeout, check)

    def cancel(self) -> None:
        self.daemon.cancel(self.id)

    def logs(self, rank: int = 0, tail: Optional[int] = None) -> str:
        """What a rank has printed; `tail`: its last lines only."""
        return self.daemon.logs(self.id, rank, tail)

    def series(self, metric: str = "loss", **parameters: Any) -> Dict[int, Series]:
        return self.daemon.series(self.id, metric, **parameters)

    def ranks(self) -> List[dict]:
        return self.daemon.ranks(self.id)

    def events(self, after: int = 0) -> List[dict]:
        return self.daemon.events(self.id, after)


def _data_directory() -> pathlib.Path:
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return pathlib.Path(base) / "lockstep"


def _config() -> Dict[str, str]:
    """url, token-file and fingerprint of ~/.config/lockstep/config.toml, which `lockstep login` writes."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = pathlib.Path(base) / "lockstep" / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.lstrip().startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def _read(path: Union[str, pathlib.Path]) -> str:
    try:
        return pathlib.Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or (host.startswith("127.") and host.replace(".", "").isdigit())


class Daemon:
    """A lockstepd.

    Found as the command line finds it: the arguments, else LOCKSTEP_URL and LOCKSTEP_TOKEN, else what `lockstep
    login` wrote, else this user's own on this machine. fingerprint: SHA-256 of the certificate, in hexadecimal, for
    https:// (LOCKSTEP_FINGERPRINT); without one the system's authorities count. timeout: seconds for one request.
    """

    def __init__(self, url: str = "", token: str = "", fingerprint: str = "", timeout: float = 30.0):
        config = _config()
        data = _data_directory()
        own = False
        self.url = url or os.environ.get("LOCKSTEP_URL", "") or config.get("url", "")
        if not self.url:
            self.url = _read(data / "url") or DEFAULT_URL
            own = True
        self.url = self.url.rstrip("/")
        if config.get("url", "").rstrip("/") not in ("", self.url):
            config = {}  # it speaks of another daemon
        own = own or _is_loopback(self.url)
        self.token = token or os.environ.get("LOCKSTEP_TOKEN", "")
        if not self.token and config.get("token-file"):
            self.token = _read(config["token-file"])
        if not self.token and own:
            self.token = _read(data / "token")
        self.fingerprint = fingerprint or os.environ.get("LOCKSTEP_FINGERPRINT", "") or config.get("fingerprint", "")
        if not self.fingerprint and own and self.url.startswith("https://"):
            self.fingerprint = _read(data / "fingerprint")
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"Daemon({self.url!r})"

    # --- requests -------------------------------------------------------------------------------
    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DaemonError(f"{self.url}: not an address of a lockstepd")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        context = ssl.create_default_context()
        if self.fingerprint:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # its certificate is compared instead, before anything is sent
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
        connection.connect()
        if self.fingerprint:
            shown = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
            wanted = self.fingerprint.lower().replace(":", "").replace("sha256", "").strip()
            if shown != wanted:
                connection.close()
                raise DaemonError(f"{self.url}: its certificate's fingerprint is {shown}, expected {wanted}")
        return connection

    def request(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None,
                timeout: Optional[float] = None) -> Tuple[int, bytes]:
        """(status, body) of one request; DaemonError if there is no answer."""
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        sent.update(headers or {})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = None
        try:
            connection = self._connect(timeout or self.timeout)
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise DaemonError(f"{method} {self.url}{path}: {error}") from error
        finally:
            if connection is not None:
                connection.close()

    def call(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None) -> Any:
        """The JSON answer of any route of GET /openapi.json; DaemonError if it is no success."""
        status, data = self.request(method, path, body, headers)
        if 200 <= status < 300:
            return json.loads(data) if data else None
        try:
            problem = json.loads(data)
        except ValueError:
            problem = {}
        words = problem.get("detail") or problem.get("title") or data[:200].decode("utf-8", "replace")
        for error in problem.get("errors", []):
            words += f"; {error.get('pointer')}: {error.get('message')}"
        raise DaemonError(f"{method} {path}: {status} {words}", status, problem)

    # --- jobs -----------------------------------------------------------------------------------
    def submit(self, specification: Mapping[str, Any], key: Optional[str] = None) -> Job:
        """Submits a specification. key: the idempotency key; the same key and specification give the same job, so a
        submission whose answer was lost can be repeated. Without one it is repeated once by itself."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        try:
            answer = self.call("POST", "/v1/jobs", dict(specification), headers)
        except DaemonError as error:
            if error.status not in (0, 409, 503):
                raise
            time.sleep(0.2)
            answer = self.call("POST", "/v1/jobs", dict(specification), headers)
        return Job(self, answer["id"])

    def job(self, id: str) -> Job:  # noqa: A002
        """A job by its id. DaemonError (status 404) if there is none."""
        return Job(self, self.get(id)["id"])

    def get(self, id: str) -> dict:  # noqa: A002
        return self.call("GET", f"/v1/jobs/{urllib.parse.quote(id, safe='')}")

    def jobs(self, **filters: Any) -> Iterator[dict]:
        """The documents of all jobs, the newest first. filters: state, user, name, label."""
        cursor = ""
        while True:
            query = {name: value for name, value in filters.items() if value is not None}
            if cursor:
                query["cursor"] = cursor
            page = self.call("GET", "/v1/jobs?" + urllib.parse.urlencode(query))
            yield from page["items"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                return

    def wait(self, id: str, timeout: Optional[float] = None, check: bool = True) -> dict:  # noqa: A002
        """See Job.wait(). lockstepd may be restarted meanwhile: a minute without an answer is waited out."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, silent_since = _POLL_SECONDS[0], None
        while True:
            try:
                job = self.get(id)
                silent_since = None
                if job["state"] in FINAL:
                    if check and job["state"] != "succeeded":
                        raise JobFailed(job)
                    return job
            except DaemonError as error:
                silent_since = silent_since or time.monotonic()
                if error.status not in (0, 503) or time.monotonic() - silent_since > 60:
                    raise
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{id}: not ended after {timeout} s")
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.5, _POLL_SECONDS[1])

    def cancel(self, id: str) -> None:  # noqa: A002
        """Asks for the end; done already: nothing happens."""
        self.call("POST", f"/v1/jobs/{id}/cancel")

    def restart(self, id: str) -> None:  # noqa: A002
        self.call("POST", f"/v1/jobs/{id}/restart")

    def checkpoint(self, id: str) -> None:  # noqa: A002
        self.call("POST", f"/v1/jobs/{id}/checkpoint")

    def logs(self, id: str, rank: int = 0, tail: Optional[int] = None) -> str:  # noqa: A002
        query = {"rank": rank, **({} if tail is None else {"tail": tail})}
        status, data = self.request("GET", f"/v1/jobs/{id}/logs?" + urllib.parse.urlencode(query))
        if status != 200:
            raise DaemonError(f"logs of {id}: {status} {data[:200].decode('utf-8', 'replace')}", status)
        return data.decode("utf-8", "replace")

    def series(self, id: str, metric: str = "loss", **parameters: Any) -> Dict[int, Series]:  # noqa: A002
        """{rank: Series} of a metric. parameters: ranks="0-7", x="step" or "time", from_=, to=, points=800."""
        query = {name.rstrip("_"): value for name, value in parameters.items()}
        answer = self.call("GET", f"/v1/jobs/{id}/series?" + urllib.parse.urlencode({"metric": metric, **query}))
        found = {}
        for one in answer["series"]:
            series = Series(one["rank"], metric)
            for x, low, high, last in one["points"]:
                series.x.append(_value(x))
                series.lowest.append(_value(low))
                series.highest.append(_value(high))
                series.values.append(_value(last))
            found[one["rank"]] = series
        return found

    def ranks(self, id: str) -> List[dict]:  # noqa: A002
        return self.call("GET", f"/v1/jobs/{id}/ranks")["items"]

    def events(self, id: str, after: int = 0) -> List[dict]:  # noqa: A002
        return self.call("GET", f"/v1/jobs/{id}/events?after={int(after)}&limit=1000")["items"]

    def whoami(self) -> dict:
        return self.call("GET", "/v1/whoami")


class AsyncDaemon:
    """Daemon for asyncio: the same functions, to be awaited; waiting holds no thread.

    Each request runs in the loop's default executor.
    """

    def __init__(self, *arguments: Any, **options: Any):
        self.daemon = Daemon(*arguments, **options)

    async def _run(self, function: Any, *arguments: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*arguments, **options))

    async def submit(self, specification: Mapping[str, Any], key: Optional[str] = None) -> Job:
        return await self._run(self.daemon.submit, specification, key)

    async def get(self, id: str) -> dict:  # noqa: A002
        return await self._run(self.daemon.get, id)

    async def jobs(self, **filters: Any) -> AsyncIterator[dict]:
        for job in await self._run(lambda: list(self.daemon.jobs(**filters))):
            yield job

    async def wait(self, id: str, timeout: Optional[float] = None, check: bool = True) -> dict:  # noqa: A002
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _POLL_SECONDS[0]
        while True:
            job = await self.get(id)
            if job["state"] in FINAL:
                if check and job["state"] != "succeeded":
                    raise JobFailed(job)
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{id}: not ended after {timeout} s")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _POLL_SECONDS[1])

    async def cancel(self, id: str) -> None:  # noqa: A002
        await self._run(self.daemon.cancel, id)

    async def logs(self, id: str, rank: int = 0, tail: Optional[int] = None) -> str:  # noqa: A002
        return await self._run(self.daemon.logs, id, rank, tail)

    async def series(self, id: str, metric: str = "loss", **parameters: Any) -> Dict[int, Series]:  # noqa: A002
        return await self._run(self.daemon.series, id, metric, **parameters)
