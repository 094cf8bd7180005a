"""Each framework's smallest training with this package's callback, logger or tracker; which, the argument says."""

import sys

import lockstep


def lightning():
    import lightning.pytorch as pl
    import torch

    from lockstep.lightning import LockstepCallback, LockstepLogger

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            loss = ((self.layer(batch[0]) - batch[0].sum(1, keepdim=True)) ** 2).mean()
            self.log("accuracy", 1 / (1 + loss), on_step=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05)

    data = torch.utils.data.TensorDataset(torch.randn(256, 8))
    trainer = pl.Trainer(accelerator="cpu", devices=2, max_epochs=1, strategy="ddp", accumulate_grad_batches=2,
                         callbacks=[LockstepCallback()], logger=LockstepLogger(), log_every_n_steps=1,
                         enable_progress_bar=False, enable_checkpointing=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(data, 8))


def accelerate():
    import torch
    from accelerate import Accelerator

    from lockstep.accelerate import LockstepTracker

    accelerator = Accelerator(log_with=LockstepTracker())
    accelerator.init_trackers("run", config={"lr": 0.05})
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.05))
    for step in range(8):
        x = torch.randn(16, 8)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"train/loss": loss, "note": "text is left out"}, step=step)
    accelerator.end_training()


def transformers():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from lockstep.transformers import LockstepCallback

    data = [{"input_ids": torch.arange(8) + n % 8, "labels": torch.arange(8) + n % 8} for n in range(64)]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    Trainer(model=model, train_dataset=data, callbacks=[LockstepCallback()], args=TrainingArguments(
        output_dir=sys.argv[2], max_steps=8, per_device_train_batch_size=4, use_cpu=True, logging_steps=1, save_steps=4,
        report_to=[], learning_rate=1e-2, disable_tqdm=True)).train()


def keras():
    import keras
    import numpy

    x = numpy.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=1, verbose=0, validation_data=(x, x.sum(1, keepdims=True)),
              callbacks=[lockstep.keras.LockstepCallback()])


def tf_keras():
    import numpy
    import tf_keras as keras

    x = numpy.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=1, verbose=0,
              callbacks=[lockstep.keras.callback_of(keras.callbacks.Callback)()])


def paddle():
    import numpy
    import paddle as paddle_
    from paddle.io import TensorDataset

    x = numpy.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    data = TensorDataset([paddle_.to_tensor(x), paddle_.to_tensor(x.sum(1, keepdims=True))])
    model = paddle_.Model(paddle_.nn.Linear(8, 1))
    model.prepare(paddle_.optimizer.SGD(0.05, parameters=model.parameters()), paddle_.nn.MSELoss())
    model.fit(data, batch_size=16, epochs=1, verbose=0, callbacks=[lockstep.paddle.LockstepCallback()])


def jax():
    import jax as jax_
    import jax.numpy as jnp

    lockstep.jax.initialize()
    assert jax_.process_count() == lockstep.context().world_size
    weight = jnp.float32(4.0)
    for step in range(1, 9):
        weight = weight * 0.8
        lockstep.jax.report(step, loss=weight * weight)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
