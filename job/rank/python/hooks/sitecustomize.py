"""Starts Lockstep's hooks in a rank's Python, then whatever sitecustomize would have run without them.

The agent puts this folder first on the ranks' PYTHONPATH; LOCKSTEP_PYTHON_HOOKS=off leaves it out.
"""

import os
import sys


def _hand_over():
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info >= (3, 8):
        try:
            import _lockstep_hooks

            _lockstep_hooks.install()
        except Exception as error:  # a script never fails because of this
            if os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "debug":
                sys.stderr.write("[lockstep: the Python hooks are not there: %r]\n" % (error,))
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


_hand_over()
