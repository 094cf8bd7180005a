"""Keras 3 (any backend) and Keras 2: a callback for fit().

    model.fit(…, callbacks=[lockstep.keras.LockstepCallback()])

Keras gives the mean of the epoch so far as the loss of a batch; so that is what is reported. Without Lockstep it does
nothing.
"""

import sys
from typing import Any, Dict, Optional

import lockstep
from lockstep._measure import Clock, numbers, say_phase

# The Keras that the script has: tf.keras may be tf_keras (Keras 2).
if "keras" not in sys.modules and "tf_keras" in sys.modules:
    from tf_keras.callbacks import Callback
else:
    from keras.callbacks import Callback

__all__ = ["LockstepCallback", "callback_of"]


def callback_of(base: type) -> type:
    """A LockstepCallback of another Keras: callback_of(tf_keras.callbacks.Callback)."""

    class _Callback(base):  # type: ignore[misc,valid-type]
        """Reports each batch of training: loss and metrics (means of the epoch so far), step_seconds."""

        # tf_keras then gives numbers that are there already and does not wait for them.
        _supports_tf_logs = False

        def __init__(self) -> None:
            super().__init__()
            self._step = 0
            self._epoch = 0
            self._clock = Clock()

        def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
            self._clock = Clock()
            try:
                self._step = int(self.model.optimizer.iterations)
            except Exception:  # none yet
                self._step = 0

        def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            self._epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            self._step += 1
            fields = self._clock.step()
            fields.pop("data_wait_seconds", None)  # Keras does not say
            lockstep.report(self._step, epoch=self._epoch, **numbers(logs), **fields)

        def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
            say_phase("eval")

        def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
            say_phase("train")

        def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            validation = {name: value for name, value in (logs or {}).items() if name.startswith("val_")}
            if validation and self._step:
                lockstep.report(self._step, epoch=epoch, kind="epoch", **numbers(validation))

    _Callback.__name__ = _Callback.__qualname__ = "LockstepCallback"
    return _Callback


LockstepCallback = callback_of(Callback)
