"""lockstep-train as a program: real processes, real signals, an agent that only serves messages."""
# size: one program, one set of helpers; each test is short

import itertools
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from rank_agent import RankAgent, rank_environment  # noqa: E402

PROGRAM = ""
TORCH_PYTHON = "/usr/bin/python3"  # the one that has Debian's torch
SMALL = {"train_samples": 2000, "test_samples": 200, "batch_size": 32, "epochs": 1}


def safetensors_of(path):
    """{name: bytes of its values}, metadata."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    values, metadata = raw[8 + length:], header.pop("__metadata__")
    return {name: values[slice(*entry["data_offsets"])] for name, entry in header.items()}, metadata


def safetensors_file(header, values):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


class Group:
    """The ranks of one generation; their lines are read through pipes."""

    def __init__(self, folder, ranks, config, servers=0):
        path = folder / "train.json"
        path.write_text(json.dumps(config))
        self.sockets = tempfile.TemporaryDirectory()
        self.agent = RankAgent(self.sockets.name, ranks).start()
        self.processes = []
        for rank in range(ranks):
            environment = rank_environment(self.agent, rank, str(folder / "ckpt"))
            environment["LOCKSTEP_TRAIN_CONFIG"] = str(path)
            if servers:
                environment["LOCKSTEP_ROLE"] = "ps" if rank < servers else "worker"
            self.processes.append(subprocess.Popen(
                [PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True))

    def wait_for_line(self, rank, text):
        for line in self.processes[rank].stdout:
            if text in line:
                return
        raise AssertionError(f"rank {rank} ended without: {text}\n"
                             + self.processes[rank].stderr.read())

    def wait_for(self, rank, condition, what):
        """Until the condition holds; the rank prints a line for every step, which are read."""
        for _ in self.processes[rank].stdout:
            if condition():
                return
        raise AssertionError(f"rank {rank} ended without: {what}\n"
                             + self.processes[rank].stderr.read())

    def finish(self):
        """(exit codes, outputs, reports)"""
        outputs = [process.communicate(timeout=120)[0] for process in self.processes]
        self.agent.stop()
        self.sockets.cleanup()
        return [p.returncode for p in self.processes], outputs, self.agent.reports


class Train(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def run_group(self, ranks, **config):
        return Group(self.folder, ranks, {**SMALL, **config}).finish()

    def checkpoints(self):
        return sorted(path.name for path in (self.folder / "ckpt").glob("*.ckpt"))

    def alone(self, config, *arguments):
        path = self.folder / "alone.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        environment.update(XDG_CACHE_HOME=str(self.folder / "cache"), OMP_NUM_THREADS="1")
        return subprocess.run([PROGRAM, "--config", str(path), *arguments], env=environment,
                              capture_output=True, text=True, timeout=120)

    def test_two_ranks_report_every_step_and_keep_checkpoints(self):
        codes, outputs, reports = self.run_group(2, checkpoint_every_steps=10)
        self.assertEqual(codes, [0, 0])
        for rank in (0, 1):
            steps = [m for r, m in reports if r == rank and m["op"] == "report" and "loss" in m]
            self.assertEqual([m["step"] for m in steps], list(range(1, 33)))  # ceil(1000 / 32)
            self.assertEqual(steps[0]["total_steps"], 32)
            for name in ("samples", "step_seconds", "data_wait_seconds", "comm_wait_seconds",
                         "busy_seconds", "forward_seconds", "backward_seconds",
                         "optimizer_seconds", "learning_rate", "grad_norm"):
                self.assertGreaterEqual(steps[5][name], 0, name)
            self.assertIn("epoch: 0, batch: 0, loss is: [2.", outputs[rank])
            self.assertIn("finished at step 32", outputs[rank])
        phases = [m["phase"] for r, m in reports if r == 0 and m["op"] == "phase"]
        self.assertEqual(phases[:2], ["init", "train"])
        self.assertIn("eval", phases)
        self.assertEqual(phases[-1], "checkpoint", "nobody takes the wait for the last one for a hang")
        written = [m["step"] for _, m in reports if m["op"] == "checkpoint"]
        self.assertEqual(written, [10, 20, 30, 32])
        self.assertEqual(self.checkpoints(), ["step-00000030.ckpt", "step-00000032.ckpt"])
        accuracy = [m["accuracy"] for _, m in reports if m.get("kind") == "epoch"]
        self.assertEqual(len(accuracy), 1)

    def test_digits_are_learned_in_two_epochs(self):
        codes, outputs, reports = self.run_group(
            2, train_samples=20000, test_samples=1000, batch_size=64, epochs=2,
            log_every_steps=100)
        self.assertEqual(codes, [0, 0], outputs)
        accuracy = [m["accuracy"] for _, m in reports if m.get("kind") == "epoch"]
        self.assertGreater(accuracy[-1], 0.95)

    def test_sigterm_to_one_rank_stops_all_with_a_checkpoint_and_143(self):
        # Or there are more of them where it trains on for a while.
        group = Group(self.folder, 2, {**SMALL, "epochs": 1000, "checkpoint_every_steps": 0})
        group.wait_for_line(0, "batch: 3,")
        group.processes[1].send_signal(signal.SIGTERM)
        codes, outputs, reports = group.finish()
        self.assertEqual(codes, [143, 143])
        self.assertIn("stopped at step", outputs[0])
        last = max(m["step"] for _, m in reports if m["op"] == "report")
        self.assertEqual(self.checkpoints(), [f"step-{last:08d}.ckpt"])

        codes, _, reports = self.run_group(2, epochs=1000, max_steps=last + 2)
        self.assertEqual(codes, [0, 0])
        steps = sorted(m["step"] for r, m in reports if r == 0 and "loss" in m)
        self.assertEqual(steps, [last + 1, last + 2])

    def test_sigterm_during_the_evaluation_loses_no_step(self):
        # The evaluation takes seconds, and begins when the last step has been printed.
        for ranks, more in ((1, {}), (2, {"strategy": "pipeline"})):
            with self.subTest(ranks=ranks):
                group = Group(self.folder, ranks, {**SMALL, **more, "test_samples": 50_000, "max_steps": 3,
                                                   "checkpoint_every_steps": 0})
                group.wait_for_line(0, "batch: 2,")
                group.processes[0].send_signal(signal.SIGTERM)
                codes, outputs, reports = group.finish()
                self.assertEqual(codes, [143] * ranks, outputs)
                self.assertEqual(self.checkpoints(), ["step-00000003.ckpt"])
                self.assertIn("stopped at step 3", outputs[0])
                self.assertNotIn("accuracy", outputs[0])  # nobody knows it
                self.assertEqual([m for _, m in reports if m.get("kind") == "epoch"], [])
                for path in (self.folder / "ckpt").iterdir():
                    path.unlink()

    def test_a_killed_rank_fails_the_others_and_loses_no_step(self):
        group = Group(self.folder, 2, {**SMALL, "epochs": 1000, "checkpoint_every_steps": 0})
        group.wait_for_line(0, "batch: 3,")
        group.processes[1].kill()
        codes, _, reports = group.finish()
        self.assertEqual(codes, [1, -signal.SIGKILL])
        last = max(m["step"] for r, m in reports if r == 0 and "loss" in m)
        self.assertEqual(self.checkpoints(), [f"step-{last:08d}.ckpt"])

    def test_a_rank_that_hangs_does_not_keep_the_others_from_stopping(self):
        group = Group(self.folder, 2, {**SMALL, "epochs": 1000, "checkpoint_every_steps": 0})
        group.wait_for_line(0, "batch: 3,")
        group.processes[1].send_signal(signal.SIGSTOP)
        group.processes[0].send_signal(signal.SIGTERM)
        out = group.processes[0].communicate(timeout=60)[0]
        self.assertEqual(group.processes[0].returncode, 143, out)
        self.assertEqual(len(self.checkpoints()), 1)
        group.processes[1].kill()
        group.processes[1].communicate()
        group.agent.stop()
        group.sockets.cleanup()

    def test_usr2_writes_a_checkpoint_and_training_goes_on(self):
        group = Group(self.folder, 1, {**SMALL, "epochs": 1000, "checkpoint_every_steps": 0})
        group.wait_for_line(0, "batch: 3,")
        group.processes[0].send_signal(signal.SIGUSR2)

        def went_on():
            seen = [m for _, m in list(group.agent.reports)]
            written = [m["step"] for m in seen if m["op"] == "checkpoint"]
            return written and any(m["op"] == "report" and m["step"] > written[0] for m in seen)

        group.wait_for(0, went_on, "a step after the checkpoint")
        group.processes[0].send_signal(signal.SIGTERM)
        codes, _, reports = group.finish()
        self.assertEqual(codes, [143])
        written = [m["step"] for _, m in reports if m["op"] == "checkpoint"]
        self.assertEqual(len(written), 2)
        self.assertLess(written[0], written[1])

    def test_the_documents_tables_are_the_choices(self):
        done = subprocess.run([PROGRAM, "--choices"], capture_output=True, text=True, check=True)
        text = (ROOT / "job" / "trainer" / "README.md").read_text(encoding="utf-8")
        shown = text.partition("lockstep-train --choices -->\n")[2].partition("<!-- end -->")[0]
        self.assertEqual(shown.strip(), done.stdout.strip())

    def test_it_trains_alone_without_an_agent(self):
        done = self.alone({**SMALL, "max_steps": 3}, "--checkpoints", str(self.folder / "ckpt"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("epoch: 0, batch: 2, loss is: [", done.stdout)
        self.assertEqual(self.checkpoints(), ["step-00000003.ckpt"])

    def launched(self, config, ranks, *arguments, configs=None):
        """As many processes with torchrun's variables and no agent; `configs`: more, by rank."""
        paths = [self.folder / f"launched-{rank}.json" for rank in range(ranks)]
        for rank, path in enumerate(paths):
            path.write_text(json.dumps({**SMALL, **config, **(configs or {}).get(rank, {})}))
        # Bound while the ranks live, so that nobody else is given the port; rank 0 may listen there.
        held = socket.socket()
        self.addCleanup(held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        environment.update(XDG_CACHE_HOME=str(self.folder / "cache"), OMP_NUM_THREADS="1",
                           WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        return [subprocess.Popen([PROGRAM, "--config", str(path), *arguments],
                                 env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
                for rank, path in enumerate(paths)]

    def test_torchruns_variables_make_one_training_without_an_agent(self):
        processes = self.launched({"max_steps": 3}, 2, "--checkpoints", str(self.folder / "ckpt"))
        ends = [process.communicate(timeout=120) for process in processes]
        self.assertEqual([p.returncode for p in processes], [0, 0], ends)
        for out, _ in ends:
            self.assertIn("on 2 ranks", out)
        self.assertEqual(self.checkpoints(), ["step-00000003.ckpt"])

    def test_servers_make_the_steps_and_end_after_their_workers(self):
        for update in ("sync", "async"):
            with self.subTest(update):
                group = Group(self.folder, 4, {**SMALL, "strategy": "parameter_server",
                                               "update": update, "max_steps": 12}, servers=2)
                codes, outputs, reports = group.finish()
                self.assertEqual(codes, [0] * 4, outputs)
                self.assertEqual({r for r, m in reports if "loss" in m}, {2, 3})
                stale = [m["staleness"] for r, m in reports if "loss" in m]
                self.assertEqual(len(stale), 24)
                if update == "sync":
                    self.assertEqual(set(stale), {0})
                self.assertEqual(self.checkpoints(), ["step-00000012.ckpt"])
                (self.folder / "ckpt" / "step-00000012.ckpt").unlink()

    def test_a_killed_server_is_named_by_every_worker(self):
        for update in ("sync", "async"):
            with self.subTest(update):
                group = Group(self.folder, 3, {**SMALL, "strategy": "parameter_server",
                                               "update": update, "epochs": 1000,
                                               "checkpoint_every_steps": 0}, servers=1)
                group.wait_for_line(1, "batch: 3,")
                group.processes[0].kill()
                ends = [process.communicate(timeout=120) for process in group.processes]
                group.agent.stop()
                group.sockets.cleanup()
                self.assertEqual([p.returncode for p in group.processes], [-signal.SIGKILL, 1, 1])
                for _, errors in ends[1:]:
                    self.assertIn("parameter server 0", errors)

    def test_a_killed_worker_ends_a_synchronous_server(self):
        group = Group(self.folder, 3, {**SMALL, "strategy": "parameter_server", "epochs": 1000,
                                       "checkpoint_every_steps": 0}, servers=1)
        group.wait_for_line(1, "batch: 3,")
        group.processes[2].kill()
        ends = [process.communicate(timeout=120) for process in group.processes]
        group.agent.stop()
        group.sockets.cleanup()
        self.assertEqual([p.returncode for p in group.processes], [1, 1, -signal.SIGKILL])
        self.assertIn("worker 1", ends[0][1])

    def test_a_pipeline_of_processes_stops_at_one_step_with_a_checkpoint(self):
        group = Group(self.folder, 4, {**SMALL, "strategy": "pipeline", "stages": 2,
                                       "epochs": 1000, "checkpoint_every_steps": 0})
        group.wait_for_line(0, "batch: 3,")
        group.processes[3].send_signal(signal.SIGTERM)
        codes, _, reports = group.finish()
        self.assertEqual(codes, [143] * 4)
        last = {max(m["step"] for r, m in reports if r == rank and "loss" in m) for rank in range(4)}
        self.assertEqual(len(last), 1)
        self.assertEqual(self.checkpoints(), [f"step-{last.pop():08d}.ckpt"])

    def test_ranks_that_were_given_different_files_are_refused_by_number(self):
        processes = self.launched({"max_steps": 3}, 2, configs={1: {"seed": 7}})
        for process in processes:
            errors = process.communicate(timeout=120)[1]
            self.assertEqual(process.returncode, 2, errors)
            self.assertIn("1 differ from rank 0", errors)

    def test_wrong_configuration_and_data_exit_with_2_and_the_reason(self):
        cases = [
            ("{", "syntax error"),
            ({"precision": "fp16"}, "needs a GPU"),
            ({"model": "gpt"}, "it needs dataset text"),
            ({"batchsize": 3}, "/batchsize"),
            ({"dataset": {"name": "mnist", "path": "/nonexistent"}}, "train-images-idx3-ubyte"),
            ({"model": "seq2seq", "dataset": {"name": "pairs", "path": "/nonexistent"}}, "/nonexistent"),
            ({"model": "seq2seq", "dataset": {"name": "pairs", "path": __file__}}, "line 1 has no tab"),
            ({"model": "gpt", "dataset": {"name": "text", "path": "/dev/null"}}, "must be at least"),
            ({"model": "linear", "dataset": {"name": "table", "path": "/nonexistent"}}, "/nonexistent"),
            ({"model": "linear", "dataset": {"name": "table", "path": __file__}}, "columns, the first one has"),
        ]
        for config, reason in cases:
            done = self.alone(config)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(reason, done.stderr)

    def test_pairs_are_learned_and_tokens_reported(self):
        words = ["".join(word) for word in itertools.product("abcd", repeat=3)]
        (self.folder / "pairs").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words * 10))
        group = Group(self.folder, 2, {
            "model": "seq2seq", "dataset": {"name": "pairs", "path": str(self.folder / "pairs")}, "context": 4,
            "strategy": "pipeline", "batch_size": 32, "epochs": 20, "max_steps": 150, "learning_rate": 0.01})
        codes, outputs, reports = group.finish()
        self.assertEqual(codes, [0, 0], outputs)
        steps = [m for r, m in reports if r == 0 and "loss" in m]
        self.assertEqual(steps[0]["tokens"], 32 * 9)
        self.assertGreater(steps[0]["mfu"], 0)
        accuracy = [m["accuracy"] for _, m in reports if m.get("kind") == "epoch"]
        self.assertGreater(accuracy[-1], 0.8)
        self.assertRegex(outputs[0], r"accuracy [01]\.[0-9]+, [0-9]+ tokens/s, MFU 0\.[0-9]+")

    def test_a_tables_prices_are_learned_and_their_errors_reported(self):
        chance = random.Random(7)
        rows = ["rooms,age,price"]
        for _ in range(300):
            rooms, age = chance.uniform(2, 9), chance.uniform(0, 90)
            rows.append(f"{rooms:.3f},{age:.3f},{20 + 30 * rooms - age / 3 + chance.gauss(0, 1):.3f}")
        (self.folder / "prices.csv").write_text("\n".join(rows) + "\n")
        group = Group(self.folder, 2, {
            "model": "linear", "dataset": {"name": "table", "path": str(self.folder / "prices.csv")},
            "batch_size": 10, "epochs": 20, "optimizer": "sgd", "learning_rate": 0.01})
        codes, outputs, reports = group.finish()
        self.assertEqual(codes, [0, 0], outputs)
        ends = [m for r, m in reports if r == 0 and m.get("kind") == "epoch"]
        self.assertNotIn("accuracy", ends[-1])
        self.assertGreater(ends[-1]["r2"], 0.99)
        self.assertLess(ends[-1]["mae"], 2.0, "in the price's own unit: its noise has 0.8")
        self.assertRegex(outputs[0], r"MAE [0-9.]+, R² 0\.99")
        # What a reader of the exported file needs to ask the model for a price.
        done = self.alone({"model": "linear", "dataset": {"name": "table", "path": str(self.folder / "prices.csv")},
                           "batch_size": 20, "epochs": 40, "optimizer": "sgd", "learning_rate": 0.01},
                          "--checkpoints", str(self.folder / "alone"))
        self.assertEqual(done.returncode, 0, done.stderr)
        raw = (self.folder / "alone" / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        header, values = json.loads(raw[8:8 + size]), raw[8 + size:]
        columns = json.loads(header["__metadata__"]["columns"])
        self.assertEqual([column["name"] for column in columns], ["rooms", "age", "price"])

        def floats(name):
            begin, end = header[name]["data_offsets"]
            return struct.unpack(f"<{(end - begin) // 4}f", values[begin:end])

        scaled = [(x - c["mean"]) / c["deviation"] for x, c in zip((5, 30), columns, strict=False)]
        answer = sum(w * x for w, x in zip(floats("dense.kernel"), scaled, strict=True)) + floats("dense.bias")[0]
        price = answer * columns[-1]["deviation"] + columns[-1]["mean"]
        self.assertAlmostEqual(price, 20 + 30 * 5 - 30 / 3, delta=3)

    def test_weights_that_are_no_number_end_every_rank_at_step_one(self):
        small = {**SMALL, "model": "mlp", "max_steps": 1}
        done = self.alone(small, "--checkpoints", str(self.folder / "first"))
        self.assertEqual(done.returncode, 0, done.stderr)
        raw = bytearray((self.folder / "first" / "model.safetensors").read_bytes())
        raw[-4000:] = struct.pack("<f", float("nan")) * 1000
        (self.folder / "broken").write_bytes(raw)
        processes = self.launched({**small, "max_steps": 9, "weights": str(self.folder / "broken")}, 2,
                                  "--checkpoints", str(self.folder / "ckpt"))
        for process in processes:
            errors = process.communicate(timeout=120)[1]
            self.assertEqual(process.returncode, 2, errors)
            self.assertIn("step 1: the loss is nan", errors)
        self.assertEqual(self.checkpoints(), [])

    def test_a_checkpoint_of_another_strategy_or_model_is_refused_by_what_differs(self):
        kept = ("--checkpoints", str(self.folder / "ckpt"))
        done = self.alone({**SMALL, "model": "mlp", "max_steps": 2}, *kept)
        self.assertEqual(done.returncode, 0, done.stderr)
        for config, reason in (({"model": "mlp", "strategy": "pipeline"}, "strategy was"),
                               ({"model": "mnist_convnet"}, "model was")):
            for process in self.launched({**config, "max_steps": 4}, 2, *kept):
                errors = process.communicate(timeout=120)[1]
                self.assertEqual(process.returncode, 2, errors)
                self.assertRegex(errors, f"{reason}|rank 0 could not read what to begin with")

    def test_what_rank_0_refuses_is_told_as_its_own_and_by_nobody_else_as_theirs(self):
        """The first to end was the job's cause, with the words "rank 0 could not read what to begin with"."""
        codes, _, _ = self.run_group(3, model="mlp", max_steps=2)
        self.assertEqual(codes, [0, 0, 0])
        codes, _, reports = self.run_group(3, model="mnist_convnet", max_steps=4)
        self.assertEqual(codes, [2, 2, 2])
        told = {rank: (message["type"], message["message"]) for rank, message in reports if message["op"] == "exception"}
        self.assertEqual(sorted(told), [0, 1, 2])
        self.assertEqual(told[0][0], "lockstep-train")
        self.assertIn("model was", told[0][1])
        # Of this type the agent takes no cause (tests/unit/model/failure_test.cpp).
        self.assertEqual([told[rank][0] for rank in (1, 2)], ["PeerFault"] * 2)

    def test_a_pipeline_that_is_killed_while_it_writes_goes_on_from_a_whole_checkpoint(self):
        config = {**SMALL, "model": "mlp", "strategy": "pipeline", "epochs": 1000, "checkpoint_every_steps": 1}
        last = 0
        for killed in (0, 1, 1):
            group = Group(self.folder, 2, config)
            group.wait_for(0, lambda: [m for _, m in list(group.agent.reports) if m["op"] == "checkpoint"],
                           "a checkpoint")
            group.processes[killed].kill()
            codes, outputs, reports = group.finish()
            self.assertEqual(codes[killed], -signal.SIGKILL)
            self.assertEqual(codes[1 - killed], 1, outputs)
            written = max(m["step"] for _, m in reports if m["op"] == "checkpoint")
            first = min(m["step"] for _, m in reports if "loss" in m)
            self.assertGreaterEqual(first, last + 1)
            last = written

    def test_the_largest_batch_is_found_by_ranks_that_share_a_machine(self):
        codes, outputs, reports = self.run_group(2, model="mlp", find_batch_size=True)
        self.assertEqual(codes, [0, 0], outputs)
        first = [m for _, m in reports if "total_steps" in m]
        self.assertEqual([m["batch_size"] for m in first], [512, 512])  # of 1000 samples each
        self.assertEqual({m["samples"] for _, m in reports if m.get("step") == 1 and "loss" in m}, {512})

    def test_pytorchs_mobilenet_has_pytorchs_loss_and_comes_back_as_it_went_in(self):
        if subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest("SKIPPED: python3-torch is not installed")
        subprocess.run([TORCH_PYTHON, str(ROOT / "tests" / "fixtures" / "torch_mobilenet.py"), str(self.folder)],
                       check=True)
        expected = json.loads((self.folder / "expected.json").read_text())
        for side, loss in expected["loss"].items():
            # One step over all samples that changes next to nothing: its loss is that of the weights.
            done = self.alone({
                "model": "mobilenet_v2", "norm_mode": "eval", "dropout": 0, "optimizer": "sgd", "momentum": 0,
                "learning_rate": 1e-12, "epochs": 1, "max_steps": 1, "batch_size": expected["samples"],
                "weights": str(self.folder / "weights.safetensors"),
                "dataset": {"name": "cifar10", "path": str(self.folder / "cifar"), "resize": int(side)}},
                "--checkpoints", str(self.folder / "ckpt" / side))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertAlmostEqual(float(done.stdout.split("loss is: [")[1].split("]")[0]), loss, delta=1e-3)
        before, _ = safetensors_of(self.folder / "weights.safetensors")
        after, metadata = safetensors_of(self.folder / "ckpt" / "0" / "model.safetensors")
        self.assertEqual(metadata, {"format": "pt", "model": "mobilenet_v2", "step": "1"})
        counters = {name for name in before if name.endswith(".num_batches_tracked")}
        self.assertEqual(set(after), set(before) - counters)
        for name, values in after.items():
            for old, new in zip(struct.iter_unpack("<f", before[name]), struct.iter_unpack("<f", values)):
                self.assertAlmostEqual(old[0], new[0], delta=1e-5, msg=name)

    def test_a_pipelined_mobilenet_has_the_losses_of_one_rank(self):
        config = {"model": "mobilenet_v2", "train_samples": 640, "test_samples": 100, "batch_size": 16,
                  "norm_mode": "eval", "dropout": 0, "max_steps": 4, "loader_workers": 0}

        def losses(text):
            return [float(line.split("[")[1].split("]")[0]) for line in text.splitlines() if "loss is" in line]

        one = self.alone({**SMALL, **config})
        self.assertEqual(one.returncode, 0, one.stderr)
        processes = self.launched({**config, "strategy": "pipeline"}, 3)
        ends = [process.communicate(timeout=120) for process in processes]
        self.assertEqual([p.returncode for p in processes], [0] * 3, ends)
        for mine, theirs in zip(losses(ends[2][0]), losses(one.stdout), strict=True):
            self.assertAlmostEqual(mine, theirs, delta=1e-4)

    def test_a_run_begins_with_what_another_left(self):
        small = {**SMALL, "model": "mlp", "dropout": 0, "max_steps": 20}
        done = self.alone(small, "--checkpoints", str(self.folder / "ckpt"))
        self.assertEqual(done.returncode, 0, done.stderr)
        again = self.alone({**small, "max_steps": 1, "weights": str(self.folder / "ckpt" / "model.safetensors")})
        self.assertEqual(again.returncode, 0, again.stderr)
        first, last = (float(done.stdout.split("loss is: [")[place].split("]")[0]) for place in (1, -1))
        self.assertLess(float(again.stdout.split("loss is: [")[1].split("]")[0]), (first + last) / 2)
        self.assertIn("weights imported", again.stderr)
        done = self.alone({**small, "max_steps": 1, "export": "none"}, "--checkpoints", str(self.folder / "none"))
        self.assertEqual([path.name for path in (self.folder / "none").iterdir()], ["step-00000001.ckpt"])

    def test_pythons_safetensors_reads_what_is_written(self):
        packages = self.folder / "packages"
        got = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages),
                              "safetensors", "numpy"], capture_output=True, text=True)
        if got.returncode != 0:
            self.skipTest("SKIPPED: no package index gives safetensors: " + got.stderr.strip()[-200:])
        done = self.alone({**SMALL, "max_steps": 3}, "--checkpoints", str(self.folder / "ckpt"))
        self.assertEqual(done.returncode, 0, done.stderr)
        script = ("import json, sys; from safetensors import safe_open; from safetensors.numpy import load_file\n"
                  "state = load_file(sys.argv[1])\n"
                  "print(json.dumps({name: [list(value.shape), str(value.dtype)] for name, value in state.items()}))\n"
                  "with safe_open(sys.argv[1], 'np') as file: assert file.metadata()['model'] == 'mnist_convnet'\n")
        read = subprocess.run([sys.executable, "-c", script, str(self.folder / "ckpt" / "model.safetensors")],
                              env={"PYTHONPATH": str(packages)}, capture_output=True, text=True, check=True)
        state = json.loads(read.stdout)
        self.assertEqual(state["conv_2.kernel"], [[24, 12, 6, 6], "float32"])
        self.assertEqual(state["norm_3.moving_variance"], [[32], "float32"])
        self.assertEqual(len(state), 17)

    def test_hostile_weights_end_the_run_before_it_trains(self):
        def tensor(**fields):
            return {"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **fields}}

        four = b"1234"
        cases = [
            (b"", "0 bytes"), (struct.pack("<Q", 1 << 60) + b"{}", "a header of"),
            (b"PK\x03\x04 a zip, as torch.save writes", "a header of"),
            (safetensors_file(b"[" * 5000, b""), "header: "), (safetensors_file(b'{"t":{},"t":{}}', b""), "header: "),
            (safetensors_file(tensor(dtype="F31"), four), "is not known"),
            (safetensors_file(tensor(shape=[1 << 32, 1 << 32]), four), "a shape that no file has"),
            (safetensors_file(tensor(shape=[-1]), four), "a shape that no file has"),
            (safetensors_file(tensor(data_offsets=[4, 0]), four), "data_offsets"),
            (safetensors_file(tensor(data_offsets=[4, 8]), four + four), "does not begin where"),
            (safetensors_file(tensor(), four + four), "the file 8"),
            (safetensors_file(tensor(), four[:3]), "the file 3"),
            (safetensors_file(tensor(), four), "dense_1.kernel is missing, and 1 more"),
        ]
        path = self.folder / "weights"
        config = {**SMALL, "model": "mlp", "train_samples": 64, "test_samples": 10, "weights": str(path)}
        for content, reason in cases:
            with self.subTest(reason):
                path.write_bytes(content)
                done = self.alone(config)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertNotIn("loss is", done.stdout)
        path.unlink()
        os.mkfifo(path)
        self.assertIn("not a regular file", self.alone(config).stderr)

    def test_strategy_single_refuses_several_ranks(self):
        group = Group(self.folder, 2, {**SMALL, "strategy": "single"})
        errors = [process.communicate(timeout=120)[1] for process in group.processes]
        group.agent.stop()
        group.sockets.cleanup()
        self.assertEqual([p.returncode for p in group.processes], [2, 2])
        self.assertIn("strategy single is one process", errors[0])

    def test_loads_nothing_of_what_debians_libtorch_does_not_call(self):
        stand_ins = pathlib.Path(PROGRAM).parents[1] / "lib" / "lockstep" / "stand-ins"
        if not stand_ins.is_dir():
            self.skipTest("SKIPPED: this LibTorch has no stand-ins (see deploy/cmake/StandIns.cmake)")
        loaded = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
        self.assertLess(len(loaded.splitlines()), 100)
        for name in ("libopencv_core", "libavcodec"):
            path = next(line for line in loaded.splitlines() if name in line).split(" => ")[1].split(" (")[0]
            self.assertEqual(pathlib.Path(path).resolve().parent, stand_ins.resolve())


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
