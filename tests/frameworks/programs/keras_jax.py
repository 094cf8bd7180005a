"""Keras on JAX, several processes: keras.distribution.initialize(), DataParallel, model.fit()."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices", flush=True)
random = np.random.default_rng(jax.process_index())
labels = random.integers(0, 10, 512)
images = (np.random.default_rng(0).uniform(0, 1, (10, 64))[labels] + random.normal(0, 0.3, (512, 64))).astype("float32")
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(images, labels, batch_size=64, epochs=2)
