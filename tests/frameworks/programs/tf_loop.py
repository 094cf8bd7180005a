"""A training loop of its own under MultiWorkerMirroredStrategy, or ParameterServerStrategy if TF_CONFIG has servers.

The chief (or worker 0) saves with tf.train.Checkpoint and everybody restores. --bad-data TASK: a worker whose data
has the wrong shape.
"""

import argparse
import os

import hold
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--folder", default="")
parser.add_argument("--bad-data", type=int, default=-1)
parser.add_argument("--stuck", type=int, default=-1)
args = parser.parse_args()

tf.config.threading.set_intra_op_parallelism_threads(1)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
servers = "ps" in resolver.cluster_spec().jobs
if servers and resolver.task_type in ("worker", "ps"):
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                         protocol="grpc").join()
strategy = (tf.distribute.ParameterServerStrategy(resolver) if servers
            else tf.distribute.MultiWorkerMirroredStrategy())
print(f"{resolver.task_type} {resolver.task_id}: {strategy.num_replicas_in_sync} replicas", flush=True)

with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]), aggregation=tf.VariableAggregation.MEAN)
    step_number = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
truth = tf.reshape(tf.range(8, dtype=tf.float32), [8, 1]) / 4


def read_forever():
    os.read(os.pipe()[0], 1)


@tf.function
def step():
    def replica():
        x = tf.random.normal([32, 8])
        error = tf.matmul(x, weights) - tf.matmul(x, truth)
        weights.assign_sub(0.1 * 2 * tf.matmul(x, error, transpose_a=True) / 32)
        return tf.reduce_mean(error * error)
    return strategy.run(replica)


checkpoint = tf.train.Checkpoint(weights=weights, step=step_number)
manager = None
if args.folder:
    first = resolver.task_id == 0 or servers
    manager = tf.train.CheckpointManager(checkpoint, args.folder if first else args.folder + f"-{resolver.task_id}", 2)
    newest = tf.train.latest_checkpoint(args.folder)
    if newest:
        checkpoint.restore(newest)
        print(f"restored step {int(step_number.numpy())}", flush=True)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy) if servers else None
for number in range(int(step_number.numpy()) + 1, args.steps + 1):
    if resolver.task_id == args.bad_data and number == 3:
        raise ValueError(f"image 17 of worker {resolver.task_id} has the shape (31, 8)")
    if resolver.task_id == args.stuck and number == 5:
        read_forever()
    if coordinator:
        value = coordinator.schedule(step)
        coordinator.join()
        loss = float(value.fetch())
    else:
        loss = float(strategy.experimental_local_results(step())[0])
    step_number.assign(number)
    print(f"step {number} loss {loss:.5f}", flush=True)
    if manager and number % 5 == 0:
        manager.save()
hold.until_released()
