"""Waits to be a rank of the next generation (recovery.warm_standby).

The agent starts a second process of a rank's command, with LOCKSTEP_STANDBY: the modules to import, and
LOCKSTEP_STANDBY_PID: that process, so that none that it starts waits, too. The second one stays until it is a rank: an
interpreter that this process becomes by exec() finds it, and ends. It comes here at the end of the
interpreter's own start, before the script: what follows is what follows in a cold rank, so that sys.argv, __main__,
sys.path and tracebacks are the interpreter's own. Descriptor 3: a byte is sent when the modules are there; a byte
that comes means go on, the end of it that nobody needs this process any more. Descriptor 4: what is to be changed
first, records that end with a null byte: "+NAME=VALUE", "-NAME", "!" (other arguments follow), ">ARGUMENT".

What fails here is raised, and sitecustomize ends the process: it may not go on to the script, which the rank that it
stands beside runs already.
"""

import _signal
import os
import sys

_CONTROL, _ORDERS = 3, 4
_OOM = "/proc/self/oom_score_adj"
# What a module imports only when it is used: DistributedDataParallel's constructor does that since torch 2, and it takes
# longer than torch itself.
_LATER = {"torch": ("torch._dynamo",)}


def begin():
    """The modules to import. From now on no process that this one starts waits, too."""
    names = os.environ.pop("LOCKSTEP_STANDBY").split(",")
    marked = os.environ.get("LOCKSTEP_STANDBY_PID", "")
    if marked != str(os.getpid()):
        raise RuntimeError("it is process %d, and process %s was started to wait" % (os.getpid(), marked or "none"))
    for descriptor in (_CONTROL, _ORDERS):
        os.set_inheritable(descriptor, False)
    return names


def wait(names):
    """Returns once this process is to be a rank; else it ends."""
    own = os.getpid()
    # The first to go when memory is short, above all while it grows; and back without any right, which only a place
    # below what it was needs.
    place = _read(_OOM)
    _write(_OOM, b"1000")
    _import(names)
    if os.getpid() != own:
        raise RuntimeError("a module has forked while it was imported")
    if not _told_to_go_on():
        os._exit(0)
    if place is not None:
        _write(_OOM, place)
    os.environ.pop("LOCKSTEP_STANDBY_PID", None)
    _obey(_read_orders())
    os.close(_CONTROL)
    os.close(_ORDERS)


def _first_folder():
    """What the interpreter puts first into sys.path for the script, or None."""
    safe = getattr(sys.flags, "safe_path", False)
    script = sys.argv[0]
    if script == "-m":
        return None if safe else os.getcwd()
    for hook in sys.path_hooks:  # a folder or an archive with a __main__.py
        try:
            hook(script)
        except ImportError:
            continue
        return os.path.abspath(script) if sys.version_info >= (3, 9) else script
    return None if safe else os.path.dirname(os.path.realpath(script))


def _import(names):
    """As a script's own first lines would, at a low priority if there is a way back from it."""
    priority = _lower()
    folder = _first_folder()
    if folder is not None:
        sys.path.insert(0, folder)
    for name in names:
        try:
            __import__(name)
        except BaseException as error:
            raise RuntimeError("cannot import %s: %s: %s" % (name, type(error).__name__, error)) from None
    for name in [later for name in names for later in _LATER.get(name, ())]:
        try:
            __import__(name)
        except Exception:
            pass  # torch 1 has none; else the script finds out, if it needs it
    if folder is not None and folder in sys.path:
        sys.path.remove(folder)
    # Of every thread that the modules have started, too, and of those that these start meanwhile.
    while priority is not None and any([_put_back(int(thread), priority) for thread in os.listdir("/proc/self/task")]):
        pass


def _put_back(thread, priority):
    """Whether it was necessary."""
    try:
        if os.getpriority(os.PRIO_PROCESS, thread) == priority:
            return False
        os.setpriority(os.PRIO_PROCESS, thread, priority)
        return True
    except ProcessLookupError:
        return False  # it has ended


def _lower():
    """The priority to go back to; None: it was not changed."""
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        # CAP_SYS_NICE counts only where it is the machine's own root's, not a container's.
        may_return = (int(_word("/proc/self/status", b"CapEff:"), 16) >> 23 & 1
                      and _read("/proc/self/uid_map").split() == [b"0", b"0", b"4294967295"])
        if not may_return and int(_word("/proc/self/limits", b"Max nice priority")) < 20 - own:
            return None
        os.setpriority(os.PRIO_PROCESS, 0, max(own, 10))  # a tenth of a busy core
        return own
    except Exception:
        return None


def _word(path, name):
    """What follows the name in its line; without a module that the script may not have loaded itself."""
    with open(path, "rb") as file:
        line = next(line for line in file if line.startswith(name))
    return line[len(name):].split()[0]


def _told_to_go_on():
    handlers = _ignore_signals()
    os.write(_CONTROL, b"r")
    answer = os.read(_CONTROL, 1)
    for number, handler in handlers:
        _signal.signal(number, handler)
    return answer == b"g"


def _ignore_signals():
    """Of what is sent to the ranks nothing is meant for a process that waits. [(signal, what it did before), ...]"""
    caught = int(_word("/proc/self/status", b"SigCgt:"), 16)
    ignored = int(_word("/proc/self/status", b"SigIgn:"), 16)
    handlers = []
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTERM):
        handler = _signal.getsignal(number)
        bit = 1 << (number - 1)
        # What C code has set cannot be put back from here: it stays, and keeps the signal from ending the process.
        if not ignored & bit and (callable(handler) or not caught & bit):
            handlers.append((number, handler))
            _signal.signal(number, _signal.SIG_IGN)
    return handlers


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _write(path, data):
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError:
        pass


def _read_orders():
    pieces = []
    at = 0
    while True:
        piece = os.pread(_ORDERS, 1 << 20, at)
        if not piece:
            return b"".join(pieces).split(b"\0")[:-1]
        pieces.append(piece)
        at += len(piece)


def _obey(orders):
    arguments = None
    for order in orders:
        kind, text = order[:1], order[1:]
        if kind == b"+":
            name, _, value = text.partition(b"=")
            os.environb[name] = value
        elif kind == b"-":
            os.environb.pop(text, None)
        elif kind == b"!":
            arguments = []
        elif kind == b">":
            arguments.append(os.fsdecode(text))
    if arguments is not None:
        original = getattr(sys, "orig_argv", None)
        if original is not None:
            original[len(original) - len(sys.argv) + 1:] = arguments
        sys.argv[1:] = arguments
