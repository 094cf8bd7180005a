"""What people get wrong; which, the first argument says."""

import sys


def torch_twice():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.init_process_group("gloo")


def worker(rank, port):
    import torch

    torch.distributed.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)


def torch_port():
    import torch

    torch.multiprocessing.start_processes(worker, args=(int(sys.argv[2]),), nprocs=2, start_method="fork")


def tf_late():
    import tensorflow as tf

    tf.constant(1.0) + 1.0
    tf.distribute.MultiWorkerMirroredStrategy()


def jax_twice():
    import jax

    jax.distributed.initialize()
    jax.distributed.initialize()


def paddle_twice():
    import paddle

    paddle.distributed.init_parallel_env()
    paddle.distributed.init_parallel_env()
    print(f"rank {paddle.distributed.get_rank()} of {paddle.distributed.get_world_size()}", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")]()
