"""Starts Lockstep's hooks in a rank's Python, then whatever sitecustomize would have run without them.

The agent puts this folder first on the ranks' PYTHONPATH; LOCKSTEP_PYTHON_HOOKS=off leaves it out.
"""

import os
import sys


def _hooks(waits):
    """The hooks, or None if they are not there."""
    try:
        if sys.version_info >= (3, 8):
            import _lockstep_hooks

            return _lockstep_hooks if _lockstep_hooks.install(waits) else None
    except Exception as error:  # a script never fails because of this
        if os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "debug":
            sys.stderr.write("[lockstep: the Python hooks are not there: %r]\n" % (error,))
    return None


def _hand_over():
    """To the user's own (further on PYTHONPATH, in a venv) or the distribution's."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder or not entry]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


def _stand_by():
    """This process is a rank only once it is told to be one: whatever goes wrong before, the script must not begin."""
    failed = None
    try:
        import _lockstep_standby as standby

        del sys.modules["_lockstep_standby"]
        names = standby.begin()
        hooks = _hooks(True)
        if hooks is None:
            raise RuntimeError("there are no hooks")
        try:
            _hand_over()
        except BaseException as error:
            failed = error  # what it means for a cold rank it means for this one, when it is a rank
        standby.wait(names)
    except BaseException as error:
        try:
            why = error if isinstance(error, RuntimeError) else repr(error)
            sys.stderr.write("lockstep: a standby cannot wait: %s\n" % (why,))
            sys.stderr.flush()
        finally:
            os._exit(1)
    try:
        hooks.begin()
    except Exception:  # a script never fails because of this
        pass
    if failed is not None:
        raise failed


def _of_process(process, what):
    with open("/proc/%s/%s" % (process, what), "rb") as file:
        return file.read().split(b"\0")[:-1]


def _is_another_program(marked):
    """Whether the process that was started to wait has started this one before it came here itself, as a line of a .pth
    file can, and not for its own script: a wrapper of the interpreter does that, and the script runs already."""
    try:
        # Where it is that process, not another one of the number in a container.
        if ("LOCKSTEP_STANDBY_PID=%s" % marked).encode() not in _of_process(marked, "environ"):
            return False
        if not os.path.basename(os.readlink("/proc/%s/exe" % marked)).startswith("python"):
            return False
        its, own = _of_process(marked, "cmdline"), _of_process("self", "cmdline")
        script = own[len(own) - len(sys.argv) :]  # or the module, or the code; and its arguments
        return not any(its[at : at + len(script)] == script for at in range(len(its)))
    except Exception:
        return False


if "LOCKSTEP_STANDBY" in os.environ:
    _marked = os.environ.get("LOCKSTEP_STANDBY_PID", "")
    if _marked != str(os.getpid()) and _is_another_program(_marked):
        del os.environ["LOCKSTEP_STANDBY"], os.environ["LOCKSTEP_STANDBY_PID"]
        _hooks(False)
        _hand_over()
    else:
        _stand_by()
elif os.environ.get("LOCKSTEP_STANDBY_PID") == str(os.getpid()):
    # By exec(), before it was told to be a rank: the agent does not hear of this one.
    sys.stderr.write("lockstep: a standby cannot wait: it has become another program by exec()\n")
    sys.stderr.flush()
    os._exit(1)
else:
    _hooks(False)
    _hand_over()
