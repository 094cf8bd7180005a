"""Where the daemon is and whose token it gets, as the command line finds it (job/cli/access.cpp, listener.cpp)."""

import errno
import fcntl
import http.client
import os
import pathlib
import pwd
import socket
import struct
import sys
import urllib.parse
from typing import Collection, Dict, Optional, Set, Tuple, Union

DEFAULT_URL = "http://127.0.0.1:8470"
DEFAULT_PORT = 8470  # of an address without one
SERVICE_DATA = pathlib.Path("/var/lib/lockstep")  # of the system's lockstepd; only root makes a folder there
_OVERFLOW = 65534  # what the kernel shows for whoever has no number in this user namespace


def data_directory() -> pathlib.Path:
    own = os.environ.get("LOCKSTEP_DATA_DIR", "")
    if own:
        return pathlib.Path(own)
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return pathlib.Path(base) / "lockstep"


def config_file() -> Dict[str, str]:
    """url, token-file, fingerprint and listener of ~/.config/lockstep/config.toml, which `lockstep login` writes."""
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


def read(path: Union[str, pathlib.Path]) -> str:
    try:
        return pathlib.Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    return host == "localhost" or host == "::1" or (host.startswith("127.") and host.replace(".", "").isdigit())


def with_scheme(url: str) -> str:
    """Without one https://, or http:// to this machine: no token crosses the network in clear unless http:// is given."""
    if "://" in url or not url:
        return url
    return ("http://" if is_loopback("//" + url) else "https://") + url


def place_of(url: str) -> Tuple[str, str, int]:
    """(scheme, host, port); ValueError: it is no address of a lockstepd."""
    parts = urllib.parse.urlsplit(with_scheme(url))
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"{url}: not an address of a lockstepd")
    return parts.scheme, parts.hostname, parts.port or DEFAULT_PORT


def digits_of(fingerprint: str) -> str:
    return fingerprint.lower().replace(":", "").replace("sha256", "").strip()


def path_of(url: str) -> str:
    """What a proxy has put before lockstepd's own paths."""
    return urllib.parse.urlsplit(with_scheme(url)).path.rstrip("/")


def same_daemon(one: str, other: str) -> bool:
    try:
        return place_of(one) == place_of(other) and path_of(one) == path_of(other)
    except ValueError:
        return False


def same_address(one: str, other: str) -> bool:
    """The same host, port and scheme; the loopback has many names."""
    try:
        a, b = place_of(one), place_of(other)
    except ValueError:
        return False
    near = is_loopback(with_scheme(one)) and is_loopback(with_scheme(other))
    return a[0] == b[0] and a[2] == b[2] and (near or a[1] == b[1])


class NearConnection(http.client.HTTPConnection):
    """HTTP through the Unix socket of a lockstepd of this user, or root's: a port of the loopback is anybody's."""

    def __init__(self, path: pathlib.Path, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by the folder's descriptor: an address of a Unix socket holds 107 bytes
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        except OSError as error:
            raise OSError(error.errno, f"{self._path}: {error.strerror}") from error
        finally:
            os.close(folder)
        user = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1]
        if os.geteuid() != 0 and user not in (0, os.geteuid()):
            raise OSError(errno.EACCES, f"{self._path}: uid {user} listens there")


def is_held(data: pathlib.Path) -> bool:
    """Whether a lockstepd runs with this data directory: it holds a lock in it."""
    whole = "hhqqi4x"  # struct flock: type, whence, start, length, process
    try:
        lock = os.open(data / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            asked = struct.pack(whole, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            return struct.unpack(whole, fcntl.fcntl(lock, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
        finally:
            os.close(lock)
    except OSError:
        return False


def is_closed(data: pathlib.Path) -> bool:
    """Whether this user cannot tell if a lockstepd runs with it: the system's is another's."""
    return (data / "lock").exists() and not os.access(data / "lock", os.R_OK | os.W_OK)


def service_users(data: pathlib.Path) -> Set[int]:
    """The users whose lockstepd somebody on this machine may mean."""
    found = set()
    for folder in (data, SERVICE_DATA):
        try:
            found.add(folder.stat().st_uid)
        except OSError:
            pass
    return found


def _table_text(address: str) -> str:
    """As /proc/net/tcp has it: words of 32 bits, each as a number of this machine's byte order."""
    data = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(f"{int.from_bytes(data[at:at + 4], sys.byteorder):08X}" for at in range(0, len(data), 4))


def _sees_every_user() -> bool:
    return read("/proc/self/uid_map").split() == ["0", "0", "4294967295"]


def _owners_in(table: str, address: str, port: int) -> Set[int]:
    wanted = f"{_table_text(address)}:{port:04X}"
    found = set()
    try:
        with open(f"/proc/self/net/{table}", encoding="ascii") as lines:
            next(lines, "")  # the heading
            for line in lines:
                words = line.split()
                if words[3] != "0A":
                    break  # sockets that listen come first (proc_net_tcp.rst)
                user = int(words[7])
                if words[1] == wanted and (user != _OVERFLOW or _sees_every_user()):
                    found.add(user)
    except OSError:
        pass
    return found


def listeners_at(address: str, port: int) -> Set[int]:
    """The users whose sockets take connections to that address. Empty: none of this network namespace does, or the kernel
    does not tell."""
    # One that names the address comes before one that takes any, and of IPv6's those only where IPv4 has none.
    places = [("tcp6", address), ("tcp6", "::")] if ":" in address else [
        ("tcp", address), ("tcp6", "::ffff:" + address), ("tcp", "0.0.0.0"), ("tcp6", "::ffff:0.0.0.0"), ("tcp6", "::")]
    for table, where in places:
        found = _owners_in(table, where, port)
        if found:
            return found
    return set()


def stranger_at(host: str, port: int, known: Collection[int]) -> Optional[int]:
    """Who listens at an address of `host` on this machine and is neither this user, root nor one of `known`."""
    try:
        addresses = {str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        return None  # connecting says why
    for address in sorted(addresses):
        plain = address[7:] if address.startswith("::ffff:") else address
        if plain != "::1" and not plain.startswith("127."):
            continue
        for user in sorted(listeners_at(plain, port)):
            if user not in (0, os.geteuid()) and user not in known:
                return user
    return None


def user_text(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except KeyError:
        return f"uid {user}"
