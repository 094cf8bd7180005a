"""lockstepd from a program: submit, wait, logs, series, cancel. Standard library only.

    daemon = lockstep.Daemon()                       # as the command line finds it
    job = daemon.submit({"name": "first", "framework": "native"})
    job.wait()                                       # raises JobFailed with the cause
    losses = job.series("loss")                      # {rank: Series}; Series.to_numpy(), .to_pandas()

``AsyncDaemon`` has the same functions to await. Any thread may use a Daemon: each request is a connection of its own.
"""

# size: the functions of Daemon and their awaitable counterparts, side by side

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
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Tuple

from lockstep import _found
from lockstep._series import Series, rank_sets, value_of

FINAL = ("succeeded", "failed", "cancelled")
_POLL_SECONDS = (0.05, 2.0)  # the first and the longest pause between two looks at a job
_SILENT_SECONDS = 60.0  # so long may lockstepd be away while somebody waits for a job
_EVENTS = 1000  # in one answer
# No answer of lockstepd's: none at all, or one of the proxy before it while lockstepd restarts.
_MAY_PASS = (0, 502, 503, 504)


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


class _Wait:
    """What waiting for a job's end remembers between two looks, whoever looks."""

    def __init__(self, id: str, timeout: Optional[float], check: bool):  # noqa: A002
        self._id, self._timeout, self._check = id, timeout, check
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = _POLL_SECONDS[0]
        self._silent_since: Optional[float] = None

    def is_over(self, job: dict) -> bool:
        """JobFailed if it is, but has not succeeded."""
        self._silent_since = None
        if job["state"] not in FINAL:
            return False
        if self._check and job["state"] != "succeeded":
            raise JobFailed(job)
        return True

    def no_answer(self, error: DaemonError) -> None:
        """Raises it, unless lockstepd may be on its way back."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if error.status not in _MAY_PASS or now - self._silent_since > _SILENT_SECONDS:
            raise error

    def pause(self) -> float:
        """Seconds until the next look; TimeoutError: there is none."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"{self._id}: not ended after {self._timeout} s")
        pause, self._pause = self._pause, min(self._pause * 1.5, _POLL_SECONDS[1])
        return pause if left is None else min(pause, left)


class Daemon:
    """A lockstepd.

    Found as the command line finds it: the arguments, else LOCKSTEP_URL and LOCKSTEP_TOKEN, else what `lockstep
    login` wrote, else this user's own on this machine, by its data directory (LOCKSTEP_DATA_DIR). fingerprint: SHA-256
    of the certificate, in hexadecimal, for https:// (LOCKSTEP_FINGERPRINT); without one the system's authorities count.
    timeout: seconds for one request. A path of the address stands before that of each request: a proxy's.
    """

    def __init__(self, url: str = "", token: str = "", fingerprint: str = "", timeout: float = 30.0):
        config = _found.config_file()
        data = _found.data_directory()
        self.url = url or os.environ.get("LOCKSTEP_URL", "") or config.get("url", "")
        guessed = not self.url
        kept = _found.read(data / "url") if guessed else ""
        if guessed:
            self.url = kept or _found.DEFAULT_URL
        self.url = _found.with_scheme(self.url).rstrip("/")
        if config.get("url", "") and not _found.same_daemon(config["url"], self.url):
            config = {}  # it speaks of another daemon
        own = guessed or _found.is_loopback(self.url)
        self.fingerprint = fingerprint or os.environ.get("LOCKSTEP_FINGERPRINT", "") or config.get("fingerprint", "")
        self._fingerprint_file: Optional[pathlib.Path] = None  # written anew when the certificate is renewed
        if not self.fingerprint and own and self.url.startswith("https://"):
            self._fingerprint_file = data / "fingerprint"
            self.fingerprint = _found.read(self._fingerprint_file)
        self._data: Optional[pathlib.Path] = None  # whose lockstepd alone may see the token
        self.token = token or os.environ.get("LOCKSTEP_TOKEN", "")
        if not self.token and config.get("token-file"):
            self.token = _found.read(config["token-file"])
        if not self.token and own:
            self.token = _found.read(data / "token")
            pinned = self.fingerprint and self.fingerprint == _found.read(data / "fingerprint")
            if self.token and not (pinned and self.url.startswith("https://")):
                self._data = data
        if kept and not self.url.startswith("https://") and not _found.is_closed(data):
            self._data = data  # any token may be for its lockstepd, and for nobody who has its address by now
        self._listeners = _found.service_users(data)
        if config.get("listener", "").isdigit():
            self._listeners.add(int(config["listener"]))
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"Daemon({self.url!r})"

    # --- requests -------------------------------------------------------------------------------
    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self.token and self._data is not None:
            if not _found.is_held(self._data):
                # Whoever listens at its old address by now is somebody else. With TLS its certificate tells.
                raise DaemonError(f"no lockstepd runs with the data directory {self._data}: start it with lockstepd; "
                                  "another one: lockstep.Daemon(url), LOCKSTEP_URL, lockstep login")
            known = _found.read(self._data / "url")
            if known and not _found.same_address(known, self.url):
                raise DaemonError(f"the token in {self._data} is for the lockstepd at {known}, not for {self.url}: give "
                                  "the other's, LOCKSTEP_TOKEN")
            to_be_pinned = self.fingerprint and self.url.startswith("https://")
            if not to_be_pinned and (self._data / "lockstepd.sock").exists():
                return _found.NearConnection(self._data / "lockstepd.sock", timeout)
        try:
            scheme, host, port = _found.place_of(self.url)
        except ValueError as error:
            raise DaemonError(str(error)) from None
        if scheme == "http":
            stranger = _found.stranger_at(host, port, self._listeners) if self.token else None
            if stranger is not None:
                raise DaemonError(f"the token was not sent: at {host}:{port} {_found.user_text(stranger)} listens; if that "
                                  f"is lockstepd's user, lockstep login {self.url} keeps it")
            return http.client.HTTPConnection(host, port, timeout=timeout)
        context = ssl.create_default_context()
        if self.fingerprint:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # its certificate is compared instead, before anything is sent
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        connection.connect()
        if self.fingerprint:
            shown = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
            wanted = _found.digits_of(self.fingerprint)
            if shown != wanted and self._fingerprint_file:
                self.fingerprint = _found.read(self._fingerprint_file) or self.fingerprint
                wanted = _found.digits_of(self.fingerprint)
            if shown != wanted:
                connection.close()
                raise DaemonError(f"{self.url}: its certificate's fingerprint is {shown}, expected {wanted}")
        return connection

    def request(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None,
                timeout: Optional[float] = None) -> Tuple[int, bytes]:
        """(status, body) of one request; DaemonError if there is no answer."""
        answer, data = self._exchange(method, path, body, headers, timeout)
        return answer.status, data

    def _exchange(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None,
                  timeout: Optional[float] = None) -> Tuple[http.client.HTTPResponse, bytes]:
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        sent.update(headers or {})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = None
        try:
            connection = self._connect(timeout or self.timeout)
            connection.request(method, urllib.parse.urlsplit(self.url).path + path, data, sent)
            answer = connection.getresponse()
            return answer, answer.read()
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
        fields = [f"{error.get('pointer')}: {error.get('message')}" for error in problem.get("errors", [])]
        if fields and words.startswith(fields[0]):  # "/name: is required (and 1 more)": all of them say it
            words = ""
        words = "; ".join([*filter(None, [words]), *fields])
        raise DaemonError(f"{method} {path}: {status} {words}", status, problem)

    # --- jobs -----------------------------------------------------------------------------------
    def submit(self, specification: Mapping[str, Any], key: Optional[str] = None) -> Job:
        """Submits a specification. key: the idempotency key; the same key and specification give the same job, so a
        submission whose answer was lost can be repeated. Without one it is repeated once by itself."""
        if not isinstance(specification, Mapping):
            raise TypeError(f"a specification is a mapping of its fields, not {type(specification).__name__}")
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        try:
            answer = self.call("POST", "/v1/jobs", dict(specification), headers)
        except DaemonError as error:
            if error.status not in (*_MAY_PASS, 409):
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
        cursor: Optional[str] = ""
        while cursor is not None:
            items, cursor = self._jobs_page(filters, cursor)
            yield from items

    def _jobs_page(self, filters: Mapping[str, Any], cursor: str) -> Tuple[List[dict], Optional[str]]:
        query = {name: value for name, value in filters.items() if value is not None}
        if cursor:
            query["cursor"] = cursor
        page = self.call("GET", "/v1/jobs?" + urllib.parse.urlencode(query))
        return page["items"], page.get("next_cursor") or None

    def wait(self, id: str, timeout: Optional[float] = None, check: bool = True) -> dict:  # noqa: A002
        """See Job.wait(). lockstepd may be restarted meanwhile, behind a proxy as well: a minute without an
        answer, or with 502, 503 or 504, is waited out."""
        waiting = _Wait(id, timeout, check)
        while True:
            try:
                job = self.get(id)
                if waiting.is_over(job):
                    return job
            except DaemonError as error:
                waiting.no_answer(error)
            time.sleep(waiting.pause())

    def cancel(self, id: str) -> None:  # noqa: A002
        """Asks for the end; done already: nothing happens."""
        self.call("POST", f"/v1/jobs/{id}/cancel")

    def restart(self, id: str, key: Optional[str] = None) -> None:  # noqa: A002
        """Ranks are started anew, from the newest checkpoint. key: the idempotency key, under which it is done once,
        so a restart whose answer was lost can be repeated. Without one it is repeated once by itself."""
        self._once(f"/v1/jobs/{id}/restart", key)

    def checkpoint(self, id: str, key: Optional[str] = None) -> None:  # noqa: A002
        """Asks the ranks for a checkpoint. key: see restart()."""
        self._once(f"/v1/jobs/{id}/checkpoint", key)

    def _once(self, path: str, key: Optional[str]) -> None:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        try:
            self.call("POST", path, headers=headers)
        except DaemonError as error:
            if error.status not in _MAY_PASS:
                raise
            time.sleep(0.2)
            self.call("POST", path, headers=headers)

    def logs(self, id: str, rank: int = 0, tail: Optional[int] = None) -> str:  # noqa: A002
        """What a rank has printed so far; `tail`: its last lines only."""
        query = {"rank": rank, **({"offset": 0} if tail is None else {"tail": tail})}
        whole = b""
        while True:
            answer, data = self._exchange("GET", f"/v1/jobs/{id}/logs?" + urllib.parse.urlencode(query))
            if answer.status != 200:
                raise DaemonError(f"logs of {id}: {answer.status} {data[:200].decode('utf-8', 'replace')}", answer.status)
            whole += data
            following = answer.getheader("Lockstep-Log-Next")
            if not data or following is None:
                return whole.decode("utf-8", "replace")
            query = {"rank": rank, "offset": following}

    def series(self, id: str, metric: str = "loss", **parameters: Any) -> Dict[int, Series]:  # noqa: A002
        """{rank: Series} of a metric, of every rank that has values. parameters: ranks="0-7" or [0, 7], x="step" or
        "time", from_=, to=, points=800. Of thousands of ranks that is much: ask for fewer points, or fewer ranks."""
        query = {name.rstrip("_"): value for name, value in parameters.items()}
        ranks = query.pop("ranks", "all")
        if ranks == "all":
            ranks = range(self.call("GET", f"/v1/jobs/{id}/ranks?limit=1")["total"])
        found = {}
        for some in rank_sets(ranks):
            asked = urllib.parse.urlencode({"metric": metric, "ranks": some, **query})
            for one in self.call("GET", f"/v1/jobs/{id}/series?{asked}")["series"]:
                series = Series(one["rank"], metric)
                for x, low, high, last in one["points"]:
                    series.x.append(value_of(x))
                    series.lowest.append(value_of(low))
                    series.highest.append(value_of(high))
                    series.values.append(value_of(last))
                found[one["rank"]] = series
        return found

    def ranks(self, id: str) -> List[dict]:  # noqa: A002
        return self.call("GET", f"/v1/jobs/{id}/ranks")["items"]

    def events(self, id: str, after: int = 0) -> List[dict]:  # noqa: A002
        """What happened, the oldest first; after: only what has a higher `seq`."""
        found: List[dict] = []
        while True:
            page = self.call("GET", f"/v1/jobs/{id}/events?after={int(after)}&limit={_EVENTS}")["items"]
            found += page
            if len(page) < _EVENTS:
                return found
            after = page[-1]["seq"]

    def whoami(self) -> dict:
        return self.call("GET", "/v1/whoami")


class AsyncDaemon:
    """Daemon for asyncio: the same functions, to be awaited; waiting holds no thread.

    Each request runs in the loop's default executor. The functions of a Job that it returns are not awaited: they
    block. Ask here by its id.
    """

    def __init__(self, *arguments: Any, **options: Any):
        self.daemon = Daemon(*arguments, **options)

    async def _run(self, function: Any, *arguments: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*arguments, **options))

    async def request(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None,
                      timeout: Optional[float] = None) -> Tuple[int, bytes]:
        return await self._run(self.daemon.request, method, path, body, headers, timeout)

    async def call(self, method: str, path: str, body: Any = None, headers: Optional[Mapping[str, str]] = None) -> Any:
        return await self._run(self.daemon.call, method, path, body, headers)

    async def submit(self, specification: Mapping[str, Any], key: Optional[str] = None) -> Job:
        return await self._run(self.daemon.submit, specification, key)

    async def job(self, id: str) -> Job:  # noqa: A002
        return await self._run(self.daemon.job, id)

    async def get(self, id: str) -> dict:  # noqa: A002
        return await self._run(self.daemon.get, id)

    async def jobs(self, **filters: Any) -> AsyncIterator[dict]:
        cursor: Optional[str] = ""
        while cursor is not None:
            items, cursor = await self._run(self.daemon._jobs_page, filters, cursor)
            for job in items:
                yield job

    async def wait(self, id: str, timeout: Optional[float] = None, check: bool = True) -> dict:  # noqa: A002
        waiting = _Wait(id, timeout, check)
        while True:
            try:
                job = await self.get(id)
                if waiting.is_over(job):
                    return job
            except DaemonError as error:
                waiting.no_answer(error)
            await asyncio.sleep(waiting.pause())

    async def cancel(self, id: str) -> None:  # noqa: A002
        await self._run(self.daemon.cancel, id)

    async def restart(self, id: str, key: Optional[str] = None) -> None:  # noqa: A002
        await self._run(self.daemon.restart, id, key)

    async def checkpoint(self, id: str, key: Optional[str] = None) -> None:  # noqa: A002
        await self._run(self.daemon.checkpoint, id, key)

    async def logs(self, id: str, rank: int = 0, tail: Optional[int] = None) -> str:  # noqa: A002
        return await self._run(self.daemon.logs, id, rank, tail)

    async def series(self, id: str, metric: str = "loss", **parameters: Any) -> Dict[int, Series]:  # noqa: A002
        return await self._run(self.daemon.series, id, metric, **parameters)

    async def ranks(self, id: str) -> List[dict]:  # noqa: A002
        return await self._run(self.daemon.ranks, id)

    async def events(self, id: str, after: int = 0) -> List[dict]:  # noqa: A002
        return await self._run(self.daemon.events, id, after)

    async def whoami(self) -> dict:
        return await self._run(self.daemon.whoami)
