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


if "LOCKSTEP_STANDBY" in os.environ:
    _stand_by()
elif os.environ.get("LOCKSTEP_STANDBY_PID") == str(os.getpid()):
    # By exec(), before it was told to be a rank: the agent does not hear of this one.
    sys.stderr.write("lockstep: a standby cannot wait: it has become another program by exec()\n")
    sys.stderr.flush()
    os._exit(1)
else:
    _hooks(False)
    _hand_over()
