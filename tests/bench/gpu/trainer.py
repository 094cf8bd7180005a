"""The native trainer on one GPU beside PyTorch on the same one: eager, torch.compile, and torch.compile with CUDA graphs.

One rank. The native one reads its data set through its loader and reports every step; the peer (trainer/peer_gpu.py) has all of it on the
GPU. Its rate is that of the last two thirds of the steps; native, peer, native, in one run. What is judged is native ÷ the
best of the peer's ways. The sizes are MODELS; gpt has 4 blocks of width 128 with 4 heads, and 256 words.

A rehearsal is on the CPU with SMALL sizes, where the native trainer refuses bf16 and fp16: of these the peer alone is tried."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile

import bench_trainer
import rank_agent
import setup

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 90
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclasses.dataclass
class Size:
    data: str
    batch: int
    steps: int
    context: int = 0
    resize: int = 0


MODELS = {"mnist_convnet": Size("digits", 256, 900), "mobilenet_v2": Size("digits", 128, 240, resize=112),
          "gpt": Size("text", 64, 600, context=256)}
SMALL = {"mnist_convnet": Size("digits", 32, 30), "mobilenet_v2": Size("digits", 4, 9, resize=32),
         "gpt": Size("text", 4, 15, context=32)}


def figure(model, precision):
    size = MODELS[model]
    more = f", context {size.context}" if size.context else f", {size.resize} × {size.resize}" if size.resize else ""
    return f"{model}, {precision}, batch {size.batch}{more}: native ÷ the best of PyTorch"


FIGURES = tuple((figure(model, precision), "≥", 1) for precision in PRECISIONS for model in MODELS)


def configuration(found, folder, model, size, precision, steps):
    out = {"model": model, "batch_size": size.batch, "max_steps": steps, "epochs": 100_000,
           "devices": "cpu" if found.rehearse else "gpu", "precision": precision, "checkpoint_every_steps": 0, "export": "none",
           "loader_workers": 1 if found.rehearse else 4, "dataset": {"name": size.data, "path": str(folder / size.data)}}
    if size.data == "digits":
        out.update(train_samples=2_000 if found.rehearse else 20_000, test_samples=200)
    else:
        out["context"] = size.context
    if size.resize:
        out["dataset"]["resize"] = size.resize
    if model == "mobilenet_v2":
        out["dropout"] = 0.2
    path = folder / f"{model}.json"
    path.write_text(json.dumps(out))
    return path


def native(found, folder, model, size, precision, steps=None):
    """Samples/s."""
    steps = steps or size.steps
    command = ["timeout", "--kill-after=5", str(int(found.within(90))), found.train, "--config",
               str(configuration(found, folder, model, size, precision, steps))]
    codes, reports = rank_agent.run(command, 1, "", log_directory=str(folder))
    if any(codes):
        log = (folder / "0.log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"lockstep-train failed: {codes[0]}: {log.strip()[-300:]}")
    ends = {m["step"]: m["time"] for _, m in reports if m["op"] == "report" and "loss" in m}
    counted = 2 * (steps // 3)
    return counted * size.batch / (ends[steps] - ends[steps - counted])


class Peer:
    """One process of peer_gpu.py, which compiles until it is ready."""

    def __init__(self, found, folder, model, size, precision):
        self.error = folder / f"{model}.peer"
        command = ["timeout", "--kill-after=5", str(int(found.within(240))), found.python, HERE.parent / "trainer" / "peer_gpu.py",
                   "--model", model, "--data", folder / size.data, "--context", str(size.context), "--resize", str(size.resize),
                   "--batch", str(size.batch), "--steps", str(max(3, size.steps // 2)), "--precision", precision,
                   "--device", "cpu" if found.rehearse else "cuda"]
        if found.rehearse and (model == "mobilenet_v2" or precision != "fp32"):
            command += ["--ways", "eager"]  # torch.compile takes minutes of a CPU for each
        with open(self.error, "wb") as error:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error, text=True)

    def wait_ready(self):
        self.process.stdout.readline()

    def rates(self):
        """{way: samples/s}, {way: why there is none}."""
        said = ""
        if self.process.poll() is None:
            said = self.process.communicate("go\n")[0]
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if not rows:
            code = self.process.wait()
            why = "it was not done in time" if code == 124 else f"{code}: {self.error.read_text(errors='replace').strip()[-300:]}"
            raise RuntimeError(f"the peer failed: {why}")
        return ({row["way"]: row["samples_per_second"] for row in rows if "error" not in row},
                {row["way"]: row["error"] for row in rows if "error" in row})

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()  # timeout's: it ends what it has started
        self.process.communicate()


def tell(figures, model, precision, size, ours, rates, missing):
    name = figure(model, precision)
    for way, why in missing.items():
        figures.note(f"{model}, {precision}: no {way}: {why}")
    if ours and any(way.startswith("compile") for way in rates):
        figures.add(name, [one / max(rates.values()) for one in ours], "×")
    elif ours and rates:
        figures.add(f"  {model}, {precision}: native ÷ {', '.join(rates)} alone", [one / max(rates.values()) for one in ours], "×")
        figures.skip(name, "no torch.compile: " + (next(iter(missing.values()), "") or "it was not tried"))
    for way, values in (("native", ours), *((way, [rate]) for way, rate in rates.items())):
        if values:
            figures.add(f"    {model}, {precision}: {way}", values, "samples/s")
        if values and size.context:
            figures.add(f"    {model}, {precision}: {way}", [one * size.context for one in values], "tokens/s")


def measure_precision(figures, found, folder, sizes, precision):
    refused = found.rehearse and precision != "fp32"
    waiting = {}
    try:
        for model, size in sizes.items():  # they compile side by side
            waiting[model] = Peer(found, folder, model, size, precision)
        for peer in waiting.values():
            peer.wait_ready()
        for model, size in sizes.items():
            try:
                ours = [] if refused else [native(found, folder, model, size, precision)]
                rates, missing = waiting[model].rates()
                if not refused:
                    ours.append(native(found, folder, model, size, precision))
                tell(figures, model, precision, size, ours, rates, missing)
                why = "the native trainer computes so on GPUs only"
            except (setup.NotRun, RuntimeError, AssertionError, OSError, KeyError) as error:
                why = str(error).strip()[-300:]
            figures.skip(figure(model, precision), why)
    finally:
        for peer in waiting.values():
            peer.end()


def measure(figures, found, _daemon):
    found.needs_trainer()
    found.needs_torch()
    sizes = SMALL if found.rehearse else MODELS
    if found.rehearse:
        figures.note("the sizes are not those that the rows name: batches of " +
                     ", ".join(f"{size.batch} ({model})" for model, size in sizes.items()))
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as name:
        folder = pathlib.Path(name)
        bench_trainer.make_texts(folder)
        for model, size in sizes.items():  # makes the data set
            native(found, folder, model, size, "fp32", 3)
        for precision in PRECISIONS:
            found.within(SECONDS if not found.rehearse else 5)
            measure_precision(figures, found, folder, sizes, precision)
