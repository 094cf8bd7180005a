"""lockstep-train as a program: real processes, real signals, an agent that only serves messages."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from rank_agent import RankAgent, rank_environment  # noqa: E402

PROGRAM = ""
SMALL = {"train_samples": 2000, "test_samples": 200, "batch_size": 32, "epochs": 1}


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
        ]
        for config, reason in cases:
            done = self.alone(config)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(reason, done.stderr)

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
