"""What the agent reads of GPUs, beside nvidia-smi's values for the same: with the fake NVML and a DOUBLE of nvidia-smi, which
says what that library was told, and with the real ones where there is a GPU (`tests/gpu`; ctest's gpu.gpu_values)."""

import os
import re
import shutil
import stat
import subprocess
import time

import gpu_tests
import harness
import test_gpus

MIB = 1 << 20
# Family and labels in /metrics, nvidia-smi's field, what one of its units is, and how far both may be apart at one moment.
BESIDE = (
    ("lockstep_gpu_utilization_ratio", "", "utilization.gpu", 0.01, 0.1),
    ("lockstep_gpu_memory_total_bytes", "", "memory.total", MIB, 2 * MIB),
    ("lockstep_gpu_memory_used_bytes", "", "memory.used", MIB, 64 * MIB),
    ("lockstep_gpu_power_watts", "", "power.draw.instant", 1, 15),
    ("lockstep_gpu_power_limit_watts", "", "enforced.power.limit", 1, 1),
    ("lockstep_gpu_temperature_celsius", 'sensor="core"', "temperature.gpu", 1, 3),
    ("lockstep_gpu_temperature_celsius", 'sensor="memory"', "temperature.memory", 1, 3),
    ("lockstep_gpu_clock_hertz", 'domain="sm"', "clocks.sm", 1e6, 100e6),
    ("lockstep_gpu_clock_hertz", 'domain="memory"', "clocks.mem", 1e6, 10e6),
    ("lockstep_gpu_ecc_errors_total", 'type="corrected"', "ecc.errors.corrected.volatile.total", 1, 0),
    ("lockstep_gpu_ecc_errors_total", 'type="uncorrected"', "ecc.errors.uncorrected.volatile.total", 1, 0),
    ("lockstep_gpu_remapped_rows_total", 'type="corrected"', "remapped_rows.correctable", 1, 0),
    ("lockstep_gpu_remapped_rows_total", 'type="uncorrected"', "remapped_rows.uncorrectable", 1, 0),
    ("lockstep_gpu_row_remap_pending", "", "remapped_rows.pending", 1, 0),
    ("lockstep_gpu_row_remap_failure", "", "remapped_rows.failure", 1, 0),
)
NUMBERS = {"No": 0.0, "Yes": 1.0}


class Beside:
    """A mixin: SMI says how nvidia-smi is called."""

    SECONDS = 20

    def ask_smi(self):
        """{field: value, or None where nvidia-smi has none} of the first GPU."""
        fields = [field for _, _, field, _, _ in BESIDE]
        said = subprocess.run([*self.smi(), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "--id=0"],
                              capture_output=True, text=True, check=True, env=self.daemon.environment()).stdout
        values = {}
        for field, text in zip(fields, said.strip().splitlines()[0].split(", "), strict=True):
            text = text.strip("[]")
            values[field] = NUMBERS[text] if text in NUMBERS else float(text) if re.fullmatch(r"[0-9.]+", text) else None
        return values

    def ours(self, family, label):
        for labels, value in re.findall(rf"^{family}\{{(.*)\}} (\S+)$", self.daemon.text("/metrics"), re.MULTILINE):
            if 'gpu="0"' in labels and label in labels:
                return float(value)
        return None

    def compare(self):
        """[(what, ours, nvidia-smi's)] of what differs, and how many were compared; a value that moves has until SECONDS."""
        left, compared, until = list(BESIDE), 0, time.monotonic() + self.SECONDS
        while True:
            smi, differ = self.ask_smi(), []
            for row in left:
                family, label, field, unit, slack = row
                theirs, ours = smi[field], self.ours(family, label)
                if theirs is None:
                    print(f"{family}{{{label}}}: nvidia-smi has no {field}; ours {ours}")
                elif ours is None or abs(ours - theirs * unit) > slack:
                    differ.append((row, f"{family}{{{label}}}", ours, theirs * unit))
                else:
                    compared += 1
                    print(f"{family}{{{label}}} {ours:g}, nvidia-smi's {field} {theirs * unit:g}")
            left = [row for row, *_ in differ]
            if not left or time.monotonic() > until:
                return [rest for _, *rest in differ], compared

    def see(self):
        harness.wait_until(lambda: self.ours("lockstep_gpu_memory_total_bytes", ""), 30, "the agent has looked at the GPU")
        return self.compare()


class WithTheFake(Beside, test_gpus.GpuCase):
    SECONDS = 3
    FIELDS = {"utilization.gpu": "50", "memory.total": "81920", "memory.used": "1024", "power.draw.instant": "100.00",
              "enforced.power.limit": "700.00", "temperature.gpu": "41", "temperature.memory": "45", "clocks.sm": "1500",
              "clocks.mem": "2619"}

    def smi(self):
        program = self.root / "nvidia-smi"
        program.write_text("#!/bin/sh\necho '" + ", ".join(
            self.FIELDS.get(field, "0" if "remapped" not in field else "[N/A]") for _, _, field, _, _ in BESIDE) + "'\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return [program]

    def test_every_value_is_that_of_the_double_of_nvidia_smi(self):
        self.write(f"gpu * memory {1024 * MIB} {81920 * MIB}", "gpu * temperature 41", "gpu * clock 1500 2619")
        job = self.submit(nodes=1, ranks=1)
        differ, compared = self.see()
        self.assertEqual(differ, [])
        self.assertGreaterEqual(compared, 11)
        self.write("gpu * clock 500 2619")
        harness.wait_until(lambda: self.ours("lockstep_gpu_clock_hertz", 'domain="sm"') == 5e8, 20, "the clock falls")
        differ, _ = self.compare()
        self.assertEqual(differ, [['lockstep_gpu_clock_hertz{domain="sm"}', 5e8, 1.5e9]])
        self.finish(job)


@gpu_tests.needs_gpu
class WithARealGpu(Beside, harness.TestCase):
    def setUp(self):
        why = gpu_tests.no_gpu() or ("" if shutil.which("nvidia-smi") else "a GPU, but no nvidia-smi")
        if why:
            self.skipTest(why)
        super().setUp()

    def smi(self):
        return [shutil.which("nvidia-smi")]

    def test_every_value_is_nvidia_smis(self):
        go = self.root / "go"
        job = self.daemon.submit(harness.command_job(
            "looked-at", harness.PYTHON, "-c",
            f"import os, time\nwhile not os.path.exists({os.fspath(go)!r}): time.sleep(0.02)",
            resources={"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 1}))["id"]
        differ, compared = self.see()
        gpu_tests.figure("NVML's values that are nvidia-smi's", compared, f"of {len(BESIDE)}")
        self.assertEqual(differ, [], "ours, nvidia-smi's")
        self.assertGreaterEqual(compared, 8)
        go.touch()
        self.assertEqual(self.daemon.wait_state(job, harness.FINAL, 60)["state"], "succeeded")


if __name__ == "__main__":
    harness.main()
