"""Paddle's parameter-server mode: servers hold the parameters, trainers send gradients."""

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
x = paddle.static.data("x", [None, 8], "float32")
y = paddle.static.data("y", [None, 1], "float32")
loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(x, 1), y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.05), strategy)
optimizer.minimize(loss)
if fleet.is_server():
    fleet.init_server()
    print("serves", flush=True)
    fleet.run_server()
else:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    random = np.random.default_rng(fleet.worker_index())
    truth = np.arange(8, dtype="float32").reshape(8, 1) / 4
    for step in range(30):
        batch = random.normal(size=(32, 8)).astype("float32")
        value, = executor.run(paddle.static.default_main_program(), feed={"x": batch, "y": batch @ truth},
                              fetch_list=[loss])
        print(f"epoch: 0, batch: {step}, loss is: [{float(value):.5f}]", flush=True)
    fleet.stop_worker()
