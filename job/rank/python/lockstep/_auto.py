"""Measuring a script that reports nothing: lockstep.auto().

    import lockstep
    lockstep.auto()            # before the model is made; or LOCKSTEP_PYTHON_HOOKS=measure in the job's environment

Each optimizer step of this process is reported then: loss, step_seconds, data_wait_seconds, and with
DistributedDataParallel on the CPU comm_wait_seconds and busy_seconds. How, by what the script uses:

* Lightning, Hugging Face's Trainer, Keras' fit(), Paddle's Model.fit(): this package's callback is added.
* torch without any of these: a step is what the first optimizer's step() ends, and another's once that one is gone or
  makes no steps any more. The loss is what backward() was called on since the step before, added up (of accumulated micro-batches each is a part; with a GradScaler it is the scaled
  loss); data wait is the time in a DataLoader's next; communication wait is the time from the last gradient that this
  rank had computed to the end of backward(). On a GPU neither is known and the loss is sent when it has arrived:
  nothing waits for the device.

A script that reports its own loss keeps doing so: then only times are added. Without Lockstep auto() does nothing and
returns False.
"""

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import lockstep
from lockstep import _client
from lockstep._measure import END_SECONDS, Later

__all__ = ["auto"]

_on = False
_owned = 0  # > 0 while a framework's own callback reports


def auto() -> bool:
    """Measures this process from now on; once. Returns whether it does (False: not started by Lockstep)."""
    global _on
    if "LOCKSTEP_SOCKET" not in os.environ:
        return False
    if _on:
        return True
    _on = True
    for name, act in WHEN_IMPORTED.items():
        module = sys.modules.get(name)
        if module is not None:
            _quietly(act, module)
        else:
            _after_import(name, act)
    return True


class _AfterImport:
    """Finds nothing itself, but has something done after a module's own code has run."""

    wanted: Dict[str, Callable[[Any], None]] = {}
    sought: Set[Tuple[int, str]] = set()  # (thread, module name) of what it asks the others for

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        sought = (threading.get_ident(), name)
        if name not in cls.wanted or sought in cls.sought:  # other such finders ask all finders in turn
            return None
        cls.sought.add(sought)
        try:
            spec = cls._find_elsewhere(name, path, target)
        finally:
            cls.sought.discard(sought)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is not None and not isinstance(spec.loader, type):
            def exec_module(module: Any) -> None:
                execute(module)
                # Only now: whoever just asks whether there is such a module never executes this spec.
                act = cls.wanted.pop(name, None) if getattr(module, "__name__", name) == name else None
                if act is not None:
                    _quietly(act, module)

            spec.loader.exec_module = exec_module
        return spec

    @classmethod
    def _find_elsewhere(cls, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not cls else None
            if spec is not None:
                return spec
        return None


def _after_import(name: str, act: Callable[[Any], None]) -> None:
    hooks = sys.modules.get("_lockstep_hooks")
    if hooks is not None and getattr(hooks, "_AfterImport", None) in sys.meta_path:  # it may be there, but off
        hooks.after_import(name, act)  # one finder is enough
        return
    if _AfterImport not in sys.meta_path:
        sys.meta_path.insert(0, _AfterImport)  # type: ignore[arg-type]
    _AfterImport.wanted[name] = act


def _quietly(function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception as error:  # a measurement never ends a training
        if os.environ.get("LOCKSTEP_PYTHON_HOOKS") == "debug":
            sys.stderr.write(f"[lockstep: not measured: {error!r}]\n")


def _wrapped(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    before = getattr(owner, name)
    after = make(before)
    for attribute in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(after, attribute, getattr(before, attribute, None))
    after.__wrapped__ = before
    setattr(owner, name, after)


# --- frameworks that have callbacks ------------------------------------------------------------------

def _own(function: Any) -> Any:
    """What a framework's callback reports is not reported a second time by torch's hooks."""
    def run(*arguments: Any, **options: Any) -> Any:
        global _owned
        _owned += 1
        try:
            return function(*arguments, **options)
        finally:
            _owned -= 1
    return run


def _lightning(module: Any) -> None:
    def make(init: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            _quietly(add, self)
        return __init__

    def add(trainer: Any) -> None:
        from lockstep.lightning import LockstepCallback

        if not any(isinstance(one, LockstepCallback) for one in trainer.callbacks):
            trainer.callbacks.append(LockstepCallback())

    _wrapped(module.Trainer, "__init__", make)
    _wrapped(module.Trainer, "_run", _own)  # of the process that trains, also of one that ddp_spawn has started


def _transformers(module: Any) -> None:
    def make(init: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            _quietly(add, self)
        return __init__

    def add(trainer: Any) -> None:
        from lockstep.transformers import LockstepCallback

        if not any(isinstance(one, LockstepCallback) for one in trainer.callback_handler.callbacks):
            trainer.add_callback(LockstepCallback())

    _wrapped(module.Trainer, "__init__", make)
    _wrapped(module.Trainer, "train", _own)


def _keras(module: Any) -> None:
    def make(init: Any) -> Any:
        def __init__(self: Any, callbacks: Any = None, *arguments: Any, **options: Any) -> None:
            try:
                given = [] if callbacks is None else callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
                callbacks = [*given, *own(given)]
            except Exception:
                pass
            init(self, callbacks, *arguments, **options)
        return __init__

    def own(given: Any) -> List[Any]:
        from lockstep.keras import callback_of

        if any(type(one).__name__ == "LockstepCallback" for one in given):
            return []
        # Its own base class is what a list of callbacks derives from, or what stands beside it.
        base = getattr(module, "Callback", None) or module.CallbackList.__mro__[1]
        return [callback_of(base)()]

    _wrapped(module.CallbackList, "__init__", make)


def _keras_fit(module: Any) -> None:
    name = {"tensorflow": "TensorFlowTrainer", "jax": "JAXTrainer", "torch": "TorchTrainer"}[
        module.__name__.split(".")[-2]]
    _wrapped(getattr(module, name), "fit", _own)


def _paddle(module: Any) -> None:
    def make(configure: Any) -> Any:
        def config_callbacks(callbacks: Any = None, *arguments: Any, **options: Any) -> Any:
            out = configure(callbacks, *arguments, **options)
            _quietly(add, out)
            return out
        return config_callbacks

    def add(callbacks: Any) -> None:
        from lockstep.paddle import LockstepCallback

        if not any(isinstance(one, LockstepCallback) for one in callbacks.callbacks):
            callback = LockstepCallback()
            callback.set_model(callbacks.callbacks[0].model)
            callbacks.append(callback)

    _wrapped(module, "config_callbacks", make)


# --- torch by itself ---------------------------------------------------------------------------------

class _Backward(threading.local):
    """How many calls of Tensor.backward() this thread is in: of a subclass, and under a default device, torch calls the
    public function once more from within it, and that is no second loss."""

    depth = 0


class _Torch:
    """The step that goes on. One per process; everything here runs in the training's own thread."""

    def __init__(self) -> None:
        self.step = 0
        self.losses: List[Any] = []
        self.counted: Optional[weakref.ref] = None  # the optimizer whose steps are the training's
        self.others: Dict[int, int] = {}  # id of another -> its steps with a loss since the counted one's last
        self.seen = 0  # losses that were there when the last of the others stepped
        self.later = Later()
        self.last = 0.0
        self.data_wait = 0.0
        self.comm_wait = 0.0
        self.gradient = 0.0  # when the last gradient of this rank's own was there
        self.has_comm = False
        self.process = os.getpid()
        self.backward = _Backward()

    def ends(self) -> None:
        """At the end of the process, also of one that an exception ends: what is still on its way from a device."""
        if os.getpid() == self.process:
            self.later.flush(END_SECONDS)

    def backward_ended(self) -> None:
        if self.gradient:
            self.comm_wait += time.perf_counter() - self.gradient
            self.gradient = 0.0

    def _counts(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer is one of the training: of several that take turns (a GAN's) one's are. Another
        takes over once the counted one is gone or stands still: the next fold, fine-tuning after pre-training."""
        counted = self.counted() if self.counted is not None else None
        if counted is not optimizer:
            before, self.seen = self.seen, len(self.losses)
            if counted is not None:
                if self.seen <= before:
                    return False  # the second of two for one loss
                self.others[id(optimizer)] = self.others.get(id(optimizer), 0) + 1
                if self.others[id(optimizer)] < 2:
                    return False
            del self.losses[:before]  # of steps that were not counted
            self.last = 0.0  # nor is what lies between a step's time
            self.counted = weakref.ref(optimizer)
        self.others.clear()
        self.seen = 0
        return True

    def optimizer_stepped(self, optimizer: Any) -> None:
        if _owned or os.getpid() != self.process:
            self.losses.clear()
            self.seen = 0
            return
        if not self._counts(optimizer) or not self.losses:
            return
        self.step += 1
        now = time.perf_counter()
        fields: Dict[str, Any] = {}
        if self.last:
            fields["step_seconds"] = now - self.last
            fields["data_wait_seconds"] = self.data_wait
            if self.has_comm:
                fields["comm_wait_seconds"] = self.comm_wait
                fields["busy_seconds"] = max(fields["step_seconds"] - self.comm_wait - self.data_wait, 0.0)
        self.last, self.data_wait, self.comm_wait = now, 0.0, 0.0
        losses, self.losses = self.losses, []
        loss = losses[0]
        for one in losses[1:]:
            loss = loss + one
        if not _client.script_reports_loss:  # it knows better
            self.later.report(self.step, loss, **fields)
        elif fields:
            _client.send_report(self.step, **fields)


def _torch(module: Any) -> None:
    from torch.nn import parallel
    from torch.optim import optimizer as optimizers
    from torch.utils.data import dataloader

    register_optimizer_step_post_hook = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if register_optimizer_step_post_hook is None:
        sys.stderr.write(f"[lockstep: torch {module.__version__} is not measured, it takes torch 2.0 or newer; "
                         "lockstep.report() works]\n")
        return
    state, torch = _Torch(), module
    atexit.register(_quietly, state.ends)

    def make_backward(backward: Any) -> Any:
        def measured(self: Any, *arguments: Any, **options: Any) -> Any:
            state.backward.depth += 1
            try:
                out = backward(self, *arguments, **options)
            finally:
                state.backward.depth -= 1
            if state.backward.depth:
                return out
            if not _owned and self.numel() == 1:
                state.losses.append(self.detach().reshape(()))
                if len(state.losses) > 4096:  # backward() without an optimizer that is seen
                    del state.losses[:-1]
            state.backward_ended()
            return out
        return measured

    _wrapped(torch.Tensor, "backward", make_backward)
    register_optimizer_step_post_hook(lambda optimizer, *_: _quietly(state.optimizer_stepped, optimizer))

    def make_next(before: Any) -> Any:
        def __next__(self: Any) -> Any:
            begun = time.perf_counter()
            try:
                return before(self)
            finally:
                state.data_wait += time.perf_counter() - begun
        return __next__

    _wrapped(dataloader._BaseDataLoaderIter, "__next__", make_next)

    def seen(_: Any) -> None:
        state.gradient = time.perf_counter()

    def make_init(init: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            _quietly(watch, self)
        return __init__

    def watch(model: Any) -> None:
        # Only where a gradient that is there has been computed: on a GPU it has been asked for.
        parameters = [p for p in model.parameters() if p.requires_grad]
        if parameters and all(p.device.type == "cpu" for p in parameters):
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(seen)  # torch 2.1 and newer
            state.has_comm = True

    _wrapped(parallel.DistributedDataParallel, "__init__", make_init)


WHEN_IMPORTED: Dict[str, Callable[[Any], None]] = {
    "lightning.pytorch.trainer.trainer": _lightning,
    "pytorch_lightning.trainer.trainer": _lightning,
    "transformers.trainer": _transformers,
    "keras.src.callbacks.callback_list": _keras,
    "tf_keras.src.callbacks": _keras,
    "keras.src.backend.torch.trainer": _keras_fit,
    "paddle.hapi.callbacks": _paddle,
    "torch": _torch,
}
