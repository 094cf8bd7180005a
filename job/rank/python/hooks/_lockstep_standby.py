"""Waits to be a rank of the next generation (recovery.warm_standby).

The agent starts a second process of a rank's command, with LOCKSTEP_STANDBY: the modules to import. It comes
here at the end of the interpreter's own start, before the script: what follows is what follows in a cold rank,
so that sys.argv, __main__, sys.path and tracebacks are the interpreter's own. Descriptor 3: a byte is sent when
the modules are there; a byte that comes means go on, the end of it that nobody needs this process any more.
Descriptor 4: what is to be changed first, records that end with a null byte: "+NAME=VALUE", "-NAME", "!" (other
arguments follow), ">ARGUMENT".

Nothing that fails here may go on to the script: the rank that this process stands beside runs it already.
"""

import os
import sys

NAME = "LOCKSTEP_STANDBY"
_CONTROL, _ORDERS = 3, 4
_OOM = "/proc/self/oom_score_adj"


def wait():
    """Returns once this process is to be a rank; else it ends."""
    try:
        names = os.environ.pop(NAME)
        _import(names.split(","))
        if not _told_to_go_on():
            os._exit(0)
        _obey(_read_orders())
        os.close(_CONTROL)
        os.close(_ORDERS)
    except BaseException as error:
        _say(f"lockstep: a standby cannot wait: {type(error).__name__}: {error}")
        os._exit(1)


def _say(text):
    try:
        sys.stdout.flush()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except Exception:
        pass


def _first_folder():
    """What the interpreter puts first into sys.path for the script, or None."""
    if getattr(sys.flags, "safe_path", False):
        return None
    script = sys.argv[0] if sys.argv else ""
    if script == "-m":
        return os.getcwd()
    if not script or script == "-c":
        return ""
    return script if os.path.isdir(script) else os.path.dirname(os.path.realpath(script))


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
            _say(f"lockstep: a standby cannot import {name}: {type(error).__name__}: {error}")
            os._exit(1)
    if folder is not None and folder in sys.path:
        sys.path.remove(folder)
    if priority is not None:
        # Of every thread that the modules have started, too.
        for thread in os.listdir("/proc/self/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), priority)


def _lower():
    """The priority to go back to; None: it was not changed."""
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        may_return = int(_word("/proc/self/status", b"CapEff:"), 16) >> 23 & 1  # CAP_SYS_NICE
        if not may_return and int(_word("/proc/self/limits", b"Max nice priority")) < 20 - own:
            return None
        os.setpriority(os.PRIO_PROCESS, 0, 10)  # a tenth of a busy core
        return own
    except Exception:
        return None


def _word(path, name):
    """What follows the name in its line; without a module that the script may not have loaded itself."""
    with open(path, "rb") as file:
        line = next(line for line in file if line.startswith(name))
    return line[len(name):].split()[0]


def _told_to_go_on():
    own = _read(_OOM)
    _write(_OOM, b"1000")  # the first to go, and back without any right: only below what it was needs one
    os.write(_CONTROL, b"r")
    answer = os.read(_CONTROL, 1)
    if own is not None:
        _write(_OOM, own)
    return answer == b"g"


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
