"""DeepSpeed's engine (ZeRO stage 1) over gloo, with its own checkpoints. Prints on every rank."""

import argparse
import os

import deepspeed
import hold
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--folder", default="")
parser.add_argument("--bad-data", type=int, default=-1)
args = parser.parse_args()

deepspeed.init_distributed("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
}, optimizer=torch.optim.Adam(model.parameters(), 0.01))
first = 0
if args.folder and os.path.exists(os.path.join(args.folder, "latest")):
    _, state = engine.load_checkpoint(args.folder)
    first = state["step"] + 1
torch.manual_seed(rank)
for step in range(first, args.steps):
    x = torch.randn(16, 64)
    y = x[:, :10].argmax(1) + (17 if rank == args.bad_data and step == 2 else 0)
    loss = torch.nn.functional.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
    print(f"step {step} loss {loss.item():.5f}", flush=True)
    if args.folder and step % 5 == 4:
        engine.save_checkpoint(args.folder, client_state={"step": step})
hold.until_released()
print(f"rank {rank} of {torch.distributed.get_world_size()}", flush=True)
torch.distributed.destroy_process_group()
