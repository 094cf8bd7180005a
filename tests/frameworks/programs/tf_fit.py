"""tf.distribute with model.fit(): MirroredStrategy, CentralStorageStrategy or MultiWorkerMirroredStrategy by name.

Digits drawn on the spot instead of CIFAR-10, a small network instead of MobileNetV2; the rest is the tutorial's.
"""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="mirrored", choices=("mirrored", "central", "multiworker"))
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--folder", default="")
parser.add_argument("--bad-data", type=int, default=-1)
args = parser.parse_args()
if args.strategy == "multiworker":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 does not know several workers

import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
BATCH_SIZE_PER_REPLICA = 64
if args.strategy == "mirrored":
    strategy = tf.distribute.MirroredStrategy(devices=["/cpu:0"])
elif args.strategy == "central":
    strategy = tf.distribute.experimental.CentralStorageStrategy()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("Number of devices: %d" % strategy.num_replicas_in_sync, flush=True)
batch = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync
random = np.random.default_rng(0)
labels = random.integers(0, 10, 2048)
images = (random.uniform(0, 1, (10, 784))[labels] + random.normal(0, 0.3, (2048, 784))).astype("float32")
resolver = strategy.cluster_resolver
if resolver is not None and resolver.task_id == args.bad_data:
    images = images[:, :100]
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(1024).batch(batch).repeat()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((784,)), tf.keras.layers.Dense(32, activation="relu"),
                                 tf.keras.layers.Dense(10)])
    model.compile(optimizer=tf.keras.optimizers.Adam(learning_rate=0.001),
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["sparse_categorical_accuracy"])
callbacks = []
if args.folder:
    # Every worker writes, the others into a folder of their own: saving is collective.
    callbacks.append(tf.keras.callbacks.BackupAndRestore(args.folder))
model.fit(dataset, epochs=args.epochs, steps_per_epoch=16, callbacks=callbacks)
