"""Starts Lockstep's hooks in a rank's Python, then whatever sitecustomize would have run without them.

The agent puts this folder first on the ranks' PYTHONPATH; LOCKSTEP_PYTHON_HOOKS=off leaves it out.
"""

import os
import sys


def _hand_over():
    folder = os.path.dirname(os.path.abspath(__file__))
    hooks = standby = None
    if sys.version_info >= (3, 8):
        try:
            import _lockstep_hooks as hooks

            hooks.install()
        except Exception as error:  # a script never fails because of this
            if os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "debug":
                sys.stderr.write("[lockstep: the Python hooks are not there: %r]\n" % (error,))
    if "LOCKSTEP_STANDBY" in os.environ:
        standby = _standby(hooks)
    # The user's own (further on PYTHONPATH, in a venv) or the distribution's.
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
        if standby is not None:
            standby.wait()
            hooks.begin()


def _standby(hooks):
    """This process is a rank only once it is told to be one: whatever goes wrong, the script must not begin."""
    try:
        if hooks is None:
            raise RuntimeError("there are no hooks")
        import _lockstep_standby

        del sys.modules["_lockstep_standby"]
        return _lockstep_standby
    except BaseException as error:
        sys.stderr.write("lockstep: a standby cannot wait: %r\n" % (error,))
        sys.stderr.flush()
        os._exit(1)


_hand_over()
