"""Hugging Face's Trainer on a small language model with random weights. Logs what Trainer logs, on rank 0."""

import argparse
import pathlib

import hold
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--folder", default="trainer")
parser.add_argument("--bad-data", type=int, default=-1)


class Text(torch.utils.data.Dataset):
    def __init__(self, bad):
        self.bad = bad

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 50
        return {"input_ids": tokens + 1000 if self.bad else tokens, "labels": tokens}


def newest_whole(folder):
    """Trainer's own get_last_checkpoint() also takes one that its process was killed in: the state is written last."""
    whole = [path.parent for path in pathlib.Path(folder).glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)


def main():
    args = parser.parse_args()
    arguments = TrainingArguments(
        output_dir=args.folder, max_steps=args.steps, per_device_train_batch_size=4, use_cpu=True, logging_steps=1,
        save_steps=4, save_total_limit=2, report_to=[], learning_rate=1e-2, gradient_accumulation_steps=2)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2))
    data = Text(bad=arguments.process_index == args.bad_data)
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train(resume_from_checkpoint=newest_whole(args.folder))
    hold.until_released()
    print(f"rank {arguments.process_index} of {arguments.world_size} at step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main()
