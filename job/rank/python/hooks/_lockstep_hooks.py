"""What a rank's Python tells its agent by itself: the exception that ends it, and where it is when it hangs.

Runs in every Python process of a rank, before the user's first line. It changes nothing that the script
sees: hooks call what was there before, nothing raises, nothing waits longer than a moment.

* An uncaught exception is told at once, with the moment it was first seen, over LOCKSTEP_SOCKET:
  {"op": "exception", "pid", "final", "time", "type", "message", "traceback", "chain", "thread", "rank"}.
  "final": it ends the process. Otherwise it may (a thread's, one that sys.exit() was called for, one that
  leaves through destroy_process_group()); it counts only if the process then fails without a final one.
  "chain": [[type, message], ...] of the exceptions it came from, the oldest first, itself the last.
* A process of several that an uncaught exception ends has 30 seconds for it once its exit functions run: jax's
  wait five minutes for the other processes, which wait for this one. Then it says where it waits, and ends.
* Signal 45 (SIGRTMIN+11) writes the Python stacks of all threads into stacks.<pid> beside the socket
  (faulthandler: no ptrace, no lock, works while the interpreter is stuck). The agent sends it only to
  processes that hold that file and catch the signal.
* SIGURG: somebody wants to know what this process does for some seconds (_lockstep_profile). Whoever does not catch
  that signal never notices it.

No import but of what is compiled into the interpreter until there is something to tell: the start of a
process must not become slower.
"""

# size: a single file, because each one costs time at every start of a rank's Python

import _signal
import _thread
import os
import sys
import time

STACK_SIGNAL = 45
_TEXT_BYTES = 12 << 10  # of a traceback; the beginning and the end are kept
_MESSAGE_BYTES = 2 << 10
_CHAIN = 16
_FOLLOWS = 5.0  # seconds from an exception that was caught to the exit for it
_PATIENCE = 0.25  # seconds, for an agent that does not answer
_EXIT_SECONDS = 30.0

_socket_path = ""
_stacks = None  # (path, pid that made it)
_told = None  # (pid, time) of the last exception told, for the sys.exit() that follows it
_wanted = {}  # module name -> what to do once it has been imported
_sought = set()  # (thread, module name) of what our finder asks the others for
_waits = False  # it is no rank yet (_lockstep_standby): the agent is told nothing


def send(message):
    """One message to the agent; False if it could not be handed over. Never raises, never waits long."""
    if _waits:
        return False
    try:
        import json

        import _socket

        data = json.dumps(message, ensure_ascii=True).encode()
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(_PATIENCE)
            connection.connect(_socket_path)
            connection.send(data)
        finally:
            connection.close()
        return True
    except Exception:
        return False


def who():
    """The rank that this process calls itself, or -1: torch's if its processes have met, else the environment's."""
    try:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
    except Exception:
        pass
    for name in ("RANK", "PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return -1


def _cut(text, size):
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= size:
        return text
    head = size // 6
    return text[:head] + "\n  [...]\n" + text[len(text) - (size - head):]


def _name(kind):
    module = getattr(kind, "__module__", "builtins")
    name = getattr(kind, "__qualname__", str(kind))
    return name if module in ("builtins", "__main__", None) else f"{module}.{name}"


def _words(value):
    try:
        return _cut(str(value), _MESSAGE_BYTES)
    except Exception:
        return "(its text cannot be made)"


def _chain_of(value):
    """The exceptions it came from, the oldest first, itself the last."""
    chain = []
    while value is not None and len(chain) < _CHAIN and not any(value is one for one in chain):
        chain.append(value)
        cause = value.__cause__
        value = cause if cause is not None or value.__suppress_context__ else value.__context__
    return chain[::-1]


def _moment(chain, now):
    """When the oldest was first seen, which is kept with it."""
    first = now
    for one in chain:
        at = getattr(one, "_lockstep_seen", None)
        if isinstance(at, float):
            first = min(first, at)
    for one in chain:
        try:
            if getattr(one, "_lockstep_seen", None) is None:
                one._lockstep_seen = first
        except Exception:
            pass
    return first


def _traceback(value, trace):
    try:
        import traceback

        return _cut("".join(traceback.format_exception(type(value), value, trace)), _TEXT_BYTES)
    except Exception:
        return f"{_name(type(value))}: {_words(value)}\n"


def note(value, final, trace=None, thread="", moment=None):
    """Tells the agent of an exception. Once as final, once as one that may end the process."""
    global _told
    now = time.time()
    try:
        told = getattr(value, "_lockstep_told", 0)
        if told >= (2 if final else 1):
            return
        chain = _chain_of(value)
        message = {
            "op": "exception",
            "pid": os.getpid(),
            "final": final,
            "time": moment if moment is not None else _moment(chain, now),
            "type": _name(type(value)),
            "message": _words(value),
            "traceback": _traceback(value, trace if trace is not None else value.__traceback__),
            "chain": [[_name(type(one)), _words(one)] for one in chain],
            "thread": thread,
            "rank": who(),
        }
        send(message)
        if not thread:
            _told = (os.getpid(), now)
        value._lockstep_told = 2 if final else 1
    except Exception:
        pass


# --- the ways an exception ends a process ----------------------------------------------------------

def _hook_uncaught():
    before = sys.excepthook

    def excepthook(kind, value, trace):
        if isinstance(value, BaseException):
            final = _is_the_end(value)
            note(value, final, trace)
            if final:
                _end_in_time()
        before(kind, value, trace)

    sys.excepthook = excepthook


def _is_the_end(value):
    """Whether the interpreter calls the hook because this exception ends the process: it has kept the exception then, and
    no module's code runs any more. A script may call the hook to print one and go on; a library's C++ does likewise."""
    try:
        if value is not getattr(sys, "last_value", None):
            return False
        threading = sys.modules.get("threading")
        if threading is not None and threading.current_thread() is not threading.main_thread():
            return False
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "<module>":
                return False
            frame = frame.f_back
        return True
    except Exception:
        return False


def _end_in_time():
    """The exit functions that are there by now, jax.distributed's among them, get _EXIT_SECONDS."""
    if os.environ.get("LOCKSTEP_WORLD_SIZE", "1") in ("", "0", "1"):
        return  # nobody waits for it
    try:
        import atexit

        atexit.register(_watch_the_end)  # the last one registered runs first
    except Exception:
        pass


def _watch_the_end():
    try:
        import faulthandler

        # Works while the interpreter is stuck; the stacks it prints say where.
        faulthandler.dump_traceback_later(_EXIT_SECONDS, exit=True, file=2)
    except Exception:
        pass


def _hook_exit():
    """sys.exit(1), alone or in an except clause: the exception that is being handled is why."""
    before = sys.exit

    def exit(status=None, /):
        if status is not None and status != 0:
            handled = sys.exc_info()[1]
            # python -m of a module that is not there: runpy says why in the status, and frames of its own say nothing.
            if handled is None or isinstance(handled, SystemExit) or type(handled).__module__ == "runpy":
                _note_exit(status)
            elif not _note_click(handled):
                note(handled, False)
        before(status)

    exit.__doc__ = before.__doc__
    exit.__module__ = "sys"
    exit.__qualname__ = "exit"
    sys.exit = exit


def _note_click(error):
    """Whether it is an error of click or typer, which is told as they show it: str() lacks the option's name. Then they
    exit, and their frames say nothing."""
    try:
        classes = [one for one in type(error).__mro__ if "format_message" in vars(one)]
        if not classes or not isinstance(getattr(error, "exit_code", None), int):
            return False
        packages = {"click", "typer", "rich_click", classes[-1].__module__.partition(".")[0]}
        caller = sys._getframe(2)
        while caller is not None and caller.f_globals.get("__name__", "").partition(".")[0] in packages:
            caller = caller.f_back
        _tell_exit(caller, _words(error.format_message()))
        return True
    except Exception:
        return False


def _note_exit(status):
    now = time.time()
    if _told is not None and _told[0] == os.getpid() and now - _told[1] < _FOLLOWS:
        return  # multiprocessing's, and torch's: why is told already
    try:
        # Without this function and the one that has called it.
        frame, words = _refused(sys._getframe(2))
        _tell_exit(frame, _words(status if words is None else words))
    except Exception:
        pass


def _tell_exit(frame, words):
    import traceback

    stack = traceback.format_stack(frame)
    text = "Traceback (most recent call last):\n" + "".join(stack) + f"SystemExit: {words}\n"
    send({"op": "exception", "pid": os.getpid(), "final": False, "time": time.time(), "type": "SystemExit",
          "message": words, "traceback": _cut(text, _TEXT_BYTES), "chain": [["SystemExit", words]],
          "thread": "", "rank": who()})


def _refused(frame):
    """Of argparse's exit, whose status says nothing: the frame that has called it, and what it says of the arguments."""
    argparse = sys.modules.get("argparse")
    caller, words = frame, None
    while argparse is not None and words is None and caller is not None:
        there = caller.f_locals if caller.f_code.co_name == "error" else {}
        words = there.get("message") if isinstance(there.get("self"), argparse.ArgumentParser) else None
        caller = caller.f_back
    if words is None:
        return frame, None
    while caller is not None and caller.f_code.co_filename == argparse.__file__:
        caller = caller.f_back
    return caller, words


def _at_exit():
    """For scripts whose own sys.excepthook does not call the one before it."""
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(value, BaseException):
        note(value, True)
    if _stacks is not None and _stacks[1] == os.getpid():
        try:
            os.unlink(_stacks[0])
        except OSError:
            pass


def _hook_threading(module):
    before = module.excepthook

    def excepthook(args):
        if isinstance(args.exc_value, BaseException) and not isinstance(args.exc_value, SystemExit):
            note(args.exc_value, False, args.exc_traceback, getattr(args.thread, "name", "") or "thread")
        before(args)

    module.excepthook = excepthook


def _hook_multiprocessing(module):
    """A child's exception is printed and swallowed by _bootstrap(), which calls run()."""
    bootstrap = module.BaseProcess._bootstrap

    def _bootstrap(self, *args, **kwargs):
        run = self.run

        def noted_run():
            try:
                run()
            except SystemExit:
                raise
            except BaseException as error:
                note(error, False)
                raise

        try:
            self.run = noted_run
        except Exception:
            pass
        return bootstrap(self, *args, **kwargs)

    module.BaseProcess._bootstrap = _bootstrap


def _hook_torch(module):
    """`finally: destroy_process_group()` ends the peers while the exception is still on its way."""
    destroy = module.destroy_process_group

    def destroy_process_group(*args, **kwargs):
        leaving = sys.exc_info()[1]
        if isinstance(leaving, Exception):
            note(leaving, False)
        return destroy(*args, **kwargs)

    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(destroy_process_group, name, getattr(destroy, name))
    destroy_process_group.__wrapped__ = destroy
    module.destroy_process_group = destroy_process_group


# --- doing something once a module has been imported -----------------------------------------------

class _AfterImport:
    """A finder that finds nothing itself, but runs what is wanted after a module's own code."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        sought = (_thread.get_ident(), name)
        if name not in _wanted or sought in _sought:  # other such finders ask all finders in turn
            return None
        spec = None
        _sought.add(sought)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                if finder is not _AfterImport and find is not None:
                    spec = find(name, path, target)
                    if spec is not None:
                        break
        finally:
            _sought.discard(sought)
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return spec

        def exec_module(module):
            execute(module)
            # Only now: whoever just asks whether there is such a module never executes this spec.
            for act in _wanted.pop(name, ()) if getattr(module, "__name__", name) == name else ():
                try:
                    act(module)
                except Exception:
                    pass

        try:
            loader.exec_module = exec_module
        except Exception:
            pass
        return spec


def after_import(name, act):
    """Calls act(module) once the module's own code has run: now, if it has."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    else:
        _wanted.setdefault(name, []).append(act)


# --- measuring, if the job asks for it -------------------------------------------------------------

# What is there first begins it; the package then waits for the rest (lockstep/_auto.py).
_MEASURED = ("torch", "keras.src.callbacks.callback_list", "tf_keras.src.callbacks", "paddle.hapi.callbacks")


def _measure(_module):
    import lockstep

    lockstep.auto()


# --- stacks ----------------------------------------------------------------------------------------

def _tell_crashes():
    """A crash in C code says where it was called from. Before the modules of a standby, which may have handlers of their
    own."""
    try:
        import faulthandler

        if not faulthandler.is_enabled() and sys.stderr is not None:
            faulthandler.enable()
    except Exception:
        pass  # a standard error that is no file


def _register_stacks():
    global _stacks
    import faulthandler

    if _signal.getsignal(STACK_SIGNAL) != _signal.SIG_DFL:
        return  # it is the user's
    path = os.path.join(os.path.dirname(_socket_path), f"stacks.{os.getpid()}")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)
    _stacks = (path, os.getpid())


# --- a profile, if somebody asks for it ------------------------------------------------------------

def _register_profile():
    if _signal.getsignal(_signal.SIGURG) != _signal.SIG_DFL:
        return  # it is the user's
    _signal.signal(_signal.SIGURG, _profile)
    _signal.siginterrupt(_signal.SIGURG, False)  # no call of the script's ends early


def _profile(_number, _frame):
    """In a thread of its own: what the main one was about to do may hold a lock that an import or threading needs."""
    try:
        import _thread
        import threading  # whoever imports it first is its main thread

        _thread.start_new_thread(_answer_profile, ())
    except Exception:
        pass


def _answer_profile():
    try:
        module = sys.modules.get("_lockstep_profile")
        if module is None:  # the hooks' folder is not among those of the script's imports
            from importlib import util

            spec = util.spec_from_file_location(
                "_lockstep_profile", os.path.join(os.path.dirname(__file__), "_lockstep_profile.py"))
            module = util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["_lockstep_profile"] = module
        module.answer(os.path.dirname(_socket_path))
    except Exception:
        pass


def install(waits=False):
    """Once per process, before the user's code. Without an agent, or with hooks off: nothing, and False.
    `waits`: it is no rank before begin()."""
    global _socket_path, _waits
    _socket_path = os.environ.get("LOCKSTEP_SOCKET", "")
    if not _socket_path or os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "off":
        return False
    _waits = waits
    import atexit

    _tell_crashes()
    atexit.register(_at_exit)  # the first one registered runs last
    _hook_uncaught()
    _hook_exit()
    after_import("threading", _hook_threading)
    after_import("multiprocessing.process", _hook_multiprocessing)
    after_import("torch.distributed.distributed_c10d", _hook_torch)
    import _lockstep_ranks

    _lockstep_ranks.install(after_import)
    if os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "measure":
        for name in _MEASURED:
            after_import(name, _measure)
    sys.meta_path.insert(0, _AfterImport)
    if not _waits:
        begin()
    return True


def begin():
    """The process is a rank from now on."""
    global _socket_path, _waits
    _waits = False
    _socket_path = os.environ.get("LOCKSTEP_SOCKET", "")
    try:
        _register_stacks()
    except Exception:
        pass
    try:
        _register_profile()
    except Exception:
        pass
