"""What measures a training (lockstep._auto, the callbacks) beside stand-ins for the frameworks: with the real ones
tests/frameworks runs whole jobs."""

import gc
import importlib.util
import sys
import types
import unittest
from unittest import mock

from python_hooks_test import HOOKS

sys.path.insert(0, str(HOOKS.parent))
from lockstep import _auto, _client, _measure


class Tensor:
    """One number. `dispatched`: of a subclass, or under a default device, where torch calls backward() from within it."""

    is_cuda = False

    def __init__(self, value, dispatched=False):
        self.value = value
        self.dispatched = dispatched

    def backward(self, fails=False):
        if self.dispatched:
            self.dispatched = False
            Tensor.backward(self, fails)
            self.dispatched = True
        elif fails:
            raise RuntimeError("Trying to backward through the graph a second time")

    def numel(self):
        return 1

    def detach(self):
        return Tensor(self.value)

    def reshape(self, _shape):
        return self

    def __add__(self, other):
        return Tensor(self.value + other.value)

    def __float__(self):
        return float(self.value)


class Parameter:
    requires_grad = True
    device = types.SimpleNamespace(type="cpu")


class Torch(unittest.TestCase):
    def setUp(self):
        self.hooks = []
        self.reports = []
        hooks = self.hooks

        class Optimizer:
            def step(self):
                for hook in hooks:
                    hook(self, (), {})

        class Loader:
            def __next__(self):
                return 0

        class DistributedDataParallel:
            def parameters(self):
                return [Parameter()]

        self.optimizer = Optimizer
        self.model = DistributedDataParallel
        torch = types.ModuleType("torch")
        self.addCleanup(setattr, Tensor, "backward", Tensor.backward)  # which is wrapped
        torch.Tensor = Tensor
        modules = {"torch": torch, "torch.nn": types.ModuleType("torch.nn"), "torch.optim": types.ModuleType("torch.optim"),
                   "torch.utils": types.ModuleType("torch.utils"), "torch.utils.data": types.ModuleType("torch.utils.data")}
        modules["torch.nn"].parallel = types.SimpleNamespace(DistributedDataParallel=DistributedDataParallel)
        modules["torch.optim"].optimizer = types.SimpleNamespace(register_optimizer_step_post_hook=hooks.append)
        modules["torch.utils.data"].dataloader = types.SimpleNamespace(_BaseDataLoaderIter=Loader)
        for patch in (mock.patch.dict(sys.modules, modules),
                      mock.patch.object(_client, "send_report", lambda step, **fields: self.reports.append((step, fields)))):
            patch.start()
            self.addCleanup(patch.stop)
        _auto._torch(torch)

    def losses(self):
        return [(step, fields["loss"]) for step, fields in self.reports]

    def train(self, optimizer, *losses):
        for loss in losses:
            Tensor(loss).backward()
            optimizer.step()

    def test_each_step_has_the_sum_of_its_micro_batches(self):
        optimizer = self.optimizer()
        for _ in range(2):
            Tensor(1).backward()
            self.train(optimizer, 2)
        self.assertEqual(self.losses(), [(1, 3.0), (2, 3.0)])

    def test_a_second_training_of_the_process_counts_on(self):
        # The first optimizer's number was kept for good: the step stood still, and the hang watch ended the job.
        self.train(self.optimizer(), 1, 2)
        gc.collect()
        self.train(self.optimizer(), 3, 4)
        self.assertEqual(self.losses(), [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)])

    def test_a_second_training_counts_on_where_the_first_optimizer_is_still_there(self):
        first, second = self.optimizer(), self.optimizer()
        self.train(first, 1, 2)
        self.train(second, 3, 4, 5)
        self.assertEqual(self.losses(), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0)], "a loss of its own each")
        self.assertNotIn("step_seconds", self.reports[2][1], "what lies between two trainings is no step")
        self.assertIn("step_seconds", self.reports[3][1])

    def test_optimizers_that_take_turns_make_one_step(self):
        one, other = self.optimizer(), self.optimizer()
        for _ in range(3):
            self.train(one, 1)
            self.train(other, 10)
        self.assertEqual(self.losses(), [(1, 1.0), (2, 11.0), (3, 11.0)])

    def test_two_optimizers_for_one_loss_make_one_step_also_after_others(self):
        first, dense, sparse = (self.optimizer() for _ in range(3))
        self.train(first, 1)
        for loss in (2, 3, 4):
            self.train(dense, loss)
            sparse.step()
        self.assertEqual(self.losses(), [(1, 1.0), (2, 3.0), (3, 4.0)])

    def test_a_backward_that_torch_calls_from_within_itself_is_one_loss(self):
        # Under torch.set_default_device() and of a subclass of Tensor the loss was doubled.
        optimizer = self.optimizer()
        Tensor(3, dispatched=True).backward()
        optimizer.step()
        with self.assertRaises(RuntimeError):
            Tensor(5, dispatched=True).backward(fails=True)
        self.train(optimizer, 4)
        self.assertEqual(self.losses(), [(1, 3.0), (2, 4.0)])

    def test_a_torch_that_does_not_say_when_a_gradient_is_there_has_no_wait_for_others(self):
        # torch 2.0: each step reported that it had waited 0 s, and was busy all of it.
        self.model()
        self.train(self.optimizer(), 1, 2)
        self.assertNotIn("comm_wait_seconds", self.reports[1][1])
        self.assertIn("step_seconds", self.reports[1][1])


class Later(unittest.TestCase):
    def test_nothing_is_asked_of_a_device_while_a_cuda_graph_is_captured(self):
        class OnTheDevice(Tensor):
            is_cuda = True

            def detach(self):
                raise AssertionError("the copy would be part of the graph")

        event = mock.Mock()
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_current_stream_capturing=lambda: True))
        later = _measure.Later()
        later._waiting.append((event, 1, Tensor(1), 5.0, {}))
        with mock.patch.dict(sys.modules, {"torch": torch}):
            later.report(2, OnTheDevice(2))
        event.query.assert_not_called()
        self.assertEqual(len(later._waiting), 1)


class AfterImport(unittest.TestCase):
    def test_who_looks_for_a_module_before_it_is_imported_takes_nothing_away(self):
        imported = []
        with mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path", list(sys.meta_path)):
            sys.modules.pop("wave", None)
            _auto._after_import("wave", imported.append)
            self.assertTrue(importlib.util.find_spec("wave") and importlib.util.find_spec("wave"))
            self.assertEqual(imported, [])
            wave = importlib.import_module("wave")
            self.assertEqual(imported, [wave])
            importlib.reload(wave)
            self.assertEqual(imported, [wave], "once only")


class Lightning(unittest.TestCase):
    def setUp(self):
        callbacks = types.ModuleType("lightning.pytorch.callbacks")
        callbacks.Callback = type("Callback", (), {})
        loggers = types.ModuleType("lightning.pytorch.loggers.logger")
        loggers.Logger = type("Logger", (), {})
        self.phases = []
        sys.modules.pop("lockstep.lightning", None)
        for patch in (mock.patch.dict(sys.modules, {
                          **{name: types.ModuleType(name) for name in (
                              "lightning", "lightning.pytorch", "lightning.pytorch.loggers")},
                          "lightning.pytorch.callbacks": callbacks, "lightning.pytorch.loggers.logger": loggers}),
                      mock.patch("lockstep.phase", self.phases.append)):
            patch.start()
            self.addCleanup(patch.stop)
        from lockstep.lightning import LockstepCallback

        self.addCleanup(sys.modules.pop, "lockstep.lightning")
        self.callback = LockstepCallback
        self.trainer = types.SimpleNamespace(global_step=0)

    def test_after_a_checkpoint_it_trains_again(self):
        # From the first one on each rank was one that saves: no straggler, no desync, no silent rank any more.
        callback = self.callback()
        callback.on_train_start(self.trainer, None)
        callback.on_train_batch_start(self.trainer, None, None, 0)
        self.assertEqual(self.phases, [], "what nobody said is not taken back")
        for _ in range(2):
            callback.on_save_checkpoint(self.trainer, None, {})
            for batch in range(2):
                callback.on_train_batch_start(self.trainer, None, None, batch)
        self.assertEqual(self.phases, ["checkpoint", "train"] * 2)

    def test_so_does_the_next_trainer_of_the_process(self):
        self.callback().on_save_checkpoint(self.trainer, None, {})
        self.callback().on_train_start(self.trainer, None)
        self.assertEqual(self.phases, ["checkpoint", "train"])

    def test_a_validation_is_one_and_the_checkpoint_after_it_too(self):
        # A validation of some minutes was taken for a hang, and ended.
        callback = self.callback()
        callback.on_train_start(self.trainer, None)
        callback.on_validation_start(self.trainer, None)
        callback.on_validation_end(self.trainer, None)
        callback.on_save_checkpoint(self.trainer, None, {})
        callback.on_train_batch_start(self.trainer, None, None, 0)
        self.assertEqual(self.phases, ["eval", "train", "checkpoint", "train"])


class Phases(unittest.TestCase):
    """Of the callbacks of frameworks that evaluate between two steps: that was taken for a hang, and ended."""

    def callback(self, module, **modules):
        """The LockstepCallback of lockstep.<module>, beside these stand-ins."""
        self.phases = []
        sys.modules.pop(f"lockstep.{module}", None)
        for patch in (mock.patch.dict(sys.modules, modules), mock.patch("lockstep.phase", self.phases.append),
                      mock.patch("lockstep.report"), mock.patch("lockstep.checkpoint")):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(sys.modules.pop, f"lockstep.{module}", None)
        return importlib.import_module(f"lockstep.{module}").LockstepCallback()

    def test_transformers_evaluates_and_saves_after_a_step(self):
        callback = self.callback("transformers", transformers=types.SimpleNamespace(TrainerCallback=object))
        args = types.SimpleNamespace(output_dir="out")
        state = types.SimpleNamespace(global_step=7, is_world_process_zero=True)
        control = types.SimpleNamespace(should_evaluate=False, should_save=False)

        def step():
            callback.on_step_begin(args, state, control)
            callback.on_step_end(args, state, control)

        callback.on_train_begin(args, state, control)
        step()
        self.assertEqual(self.phases, [], "what nobody said is not taken back")
        control.should_evaluate = control.should_save = True
        callback.on_step_end(args, state, control)
        self.assertEqual(self.phases, ["eval"], "before the evaluation begins")
        for _ in range(3):
            callback.on_prediction_step(args, state, control)
        control.should_evaluate = False  # as Trainer does
        callback.on_evaluate(args, state, control)
        self.assertEqual(self.phases, ["eval", "checkpoint"])
        control.should_save = False
        callback.on_save(args, state, control)
        step()
        self.assertEqual(self.phases, ["eval", "checkpoint", "train"])

    def test_transformers_evaluates_by_the_epoch_and_when_it_is_asked_to(self):
        callback = self.callback("transformers", transformers=types.SimpleNamespace(TrainerCallback=object))
        control = types.SimpleNamespace(should_evaluate=True, should_save=False)
        callback.on_epoch_end(None, None, control)
        self.assertEqual(self.phases, ["eval"])
        control.should_evaluate = False
        callback.on_step_begin(None, None, control)  # whatever came of it
        callback.on_prediction_step(None, None, control)
        callback.on_evaluate(None, None, control)
        callback.on_prediction_step(None, None, control)
        callback.on_predict(None, None, control, {})
        self.assertEqual(self.phases, ["eval", "train"] * 3)

    def test_keras_validates_after_an_epoch(self):
        callbacks = types.SimpleNamespace(Callback=type("Callback", (), {}))
        callback = self.callback("keras", **{"keras": types.ModuleType("keras"), "keras.callbacks": callbacks})
        callback.on_train_batch_end(0)
        self.assertEqual(self.phases, [])
        callback.on_test_begin()
        self.assertEqual(self.phases, ["eval"])
        callback.on_test_end()
        callback.on_train_batch_end(1)
        self.assertEqual(self.phases, ["eval", "train"])

    def test_a_phase_that_was_lost_is_said_again(self):
        answers = iter([True, False, True])
        said = []

        def phase(name):
            said.append(name)
            return next(answers)

        with mock.patch("lockstep.phase", phase):
            for name in ("eval", "eval", "train", "train", "train"):
                _measure.say_phase(name)
        self.assertEqual(said, ["eval", "train", "train"])


if __name__ == "__main__":
    unittest.main()
