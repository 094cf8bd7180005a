"""Whether a checkpoint was asked for: a signal of the agent, turned into a flag."""

import os
import signal
import threading

# Plain numbers: a handler runs between two instructions of the main thread, which may hold any lock.
_requests = 0
_answered = 0
_lock = threading.Lock()
_installed = False
_previous = None


def _on_signal(number, frame):
    global _requests
    _requests += 1
    # Python's own for SIGINT would raise KeyboardInterrupt where a checkpoint is asked for.
    if callable(_previous) and _previous is not signal.default_int_handler:
        _previous(number, frame)


def _after_fork():
    """A forked child (a worker of a data loader) inherits the handler, but not the request."""
    global _lock, _answered
    _lock = threading.Lock()  # another thread of the parent may have held it
    _answered = _requests


def _install():
    global _installed, _previous
    name = os.environ.get("LOCKSTEP_CHECKPOINT_SIGNAL", "")
    number = getattr(signal, "SIG" + name, None) if name else None
    with _lock:
        if _installed:
            return
        if number is None:  # started by hand: nobody will ask
            _installed = True
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("lockstep.checkpoint_requested(): the first call must come from the "
                               "main thread, because it installs a signal handler")
        _previous = signal.getsignal(number)
        signal.signal(number, _on_signal)
        # System calls of libraries are restarted instead of failing with EINTR.
        signal.siginterrupt(number, False)
        os.register_at_fork(after_in_child=_after_fork)
        _installed = True


def checkpoint_requested() -> bool:
    """True once after each request for a checkpoint; requests between two calls count as one.

    A request is ``lockstep checkpoint ID`` or, with ``checkpoint.seconds_before_timeout``, the
    approaching time limit. The agent asks by the signal ``checkpoint.signal`` (SIGUSR2 by default),
    which ends a process that does not catch it: it is therefore sent only once every rank does. The
    first call installs the handler and must come from the main thread (RuntimeError otherwise); call
    it before training starts. A handler that was there before is called, too (with ``checkpoint.signal``
    INT not Python's own, which raises KeyboardInterrupt). Never blocks.

    Every rank is asked, but not at the same step. If writing a checkpoint is a collective operation,
    let one rank decide and tell the others (a broadcast).

    Without Lockstep it returns False.
    """
    global _answered
    if not _installed:
        _install()
    requests = _requests
    if requests == _answered:
        return False
    _answered = requests
    return True
