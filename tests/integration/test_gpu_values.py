"""What the agent reads of every GPU, beside nvidia-smi's values for the same: with the fake NVML and a DOUBLE of nvidia-smi, which
says what that library was told, and with the real ones where there is a GPU (`tests/gpu`; ctest's gpu.gpu_values)."""
# size: the table of every series, and why nvidia-smi lacks some, beside what reads both

import dataclasses
import json
import re
import shutil
import stat
import subprocess
import threading
import time
import unittest
import xml.etree.ElementTree

import gpu_tests
import harness
import test_gpus

MIB = 1 << 20
EXPOSITION = harness.SOURCE / "daemon" / "telemetry" / "exposition" / "gpu_exposition.cpp"


@dataclasses.dataclass(frozen=True)
class Row:
    """How far both may be apart at one moment: `slack` in the unit of /metrics, and `share` of the value."""
    series: str  # in /metrics, with its own label
    # Of nvidia-smi: a field of --query-gpu; with a slash an element of -q -x; else a command and a pattern whose numbers are
    # added up over all links.
    ask: str | tuple
    unit: float = 1  # one of nvidia-smi's, in the unit of /metrics
    slack: float = 0
    share: float = 0


def throttled(reason, field):
    return Row(f'lockstep_gpu_throttle_seconds_total{{reason="{reason}"}}', f"clocks_event_reasons_counters.{field}", 1e-6, 2.5)


def nvlink_errors(kind, words):
    return Row(f'lockstep_gpu_nvlink_errors_total{{kind="{kind}"}}', ("nvlink -e", rf"(?i)(?:{words}): (\d+)"))


COMPARED = (
    Row("lockstep_gpu_utilization_ratio", "utilization.gpu", 0.01, 0.1),
    Row("lockstep_gpu_memory_total_bytes", "memory.total", MIB, 2 * MIB),
    Row("lockstep_gpu_memory_used_bytes", "memory.used", MIB, 64 * MIB),
    Row("lockstep_gpu_power_watts", "power.draw.instant", 1, 15, 0.1),
    Row("lockstep_gpu_power_limit_watts", "enforced.power.limit", 1, 1),
    Row('lockstep_gpu_temperature_celsius{sensor="core"}', "temperature.gpu", 1, 3),
    Row('lockstep_gpu_temperature_celsius{sensor="memory"}', "temperature.memory", 1, 3),
    Row('lockstep_gpu_clock_hertz{domain="sm"}', "clocks.sm", 1e6, 100e6),
    Row('lockstep_gpu_clock_hertz{domain="memory"}', "clocks.mem", 1e6, 10e6),
    throttled("sw_power", "sw_power_cap"),
    throttled("sync_boost", "sync_boost"),
    throttled("sw_thermal", "sw_thermal_slowdown"),
    throttled("hw_thermal", "hw_thermal_slowdown"),
    throttled("hw_power_brake", "hw_power_brake_slowdown"),
    Row("lockstep_gpu_pcie_replays_total", "pci/replay_counter"),
    Row('lockstep_gpu_nvlink_bytes_total{direction="tx"}', ("nvlink -gt d", r"Data Tx: (\d+) KiB"), 1024, 64 * MIB),
    Row('lockstep_gpu_nvlink_bytes_total{direction="rx"}', ("nvlink -gt d", r"Data Rx: (\d+) KiB"), 1024, 64 * MIB),
    nvlink_errors("recovery", "Recovery Errors|Total link recovery events"),
    nvlink_errors("remote", "Rx remote Errors"),
    nvlink_errors("general", "Rx General Errors"),
    nvlink_errors("integrity", "Local link integrity Errors"),
    nvlink_errors("discard", "Tx discards"),
    nvlink_errors("recovery_failed", "Link recovery failed events"),
    Row('lockstep_gpu_ecc_errors_total{type="corrected"}', "ecc.errors.corrected.volatile.total"),
    Row('lockstep_gpu_ecc_errors_total{type="uncorrected"}', "ecc.errors.uncorrected.volatile.total"),
    Row('lockstep_gpu_remapped_rows_total{type="corrected"}', "remapped_rows.correctable"),
    Row('lockstep_gpu_remapped_rows_total{type="uncorrected"}', "remapped_rows.uncorrectable"),
    Row("lockstep_gpu_row_remap_pending", "remapped_rows.pending"),
    Row("lockstep_gpu_row_remap_failure", "remapped_rows.failure"),
    Row("lockstep_gpu_recovery_action", "./gpu_recovery_action"),
)
# Any GPU that trains has these: an nvidia-smi that says none of one is not understood here.
ALWAYS = {row.series for row in COMPARED if row.ask in (
    "utilization.gpu", "memory.total", "memory.used", "temperature.gpu", "clocks.sm", "clocks.mem")}
# What nvidia-smi has no value of, why, and what is looked at instead: a function of Beside.
WITHOUT = {
    "lockstep_gpu_energy_joules_total": ("no field of --query-gpu: its power added up", "check_energy"),
    **{f"lockstep_gpu_{what}_ratio": ("`dmon --gpm-metrics` measures in seconds of its own", "check_ratio")
       for what in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")},
    **{f'lockstep_gpu_pcie_bytes_total{{direction="{direction}"}}': ("`dmon -s t` has the rate of 20 ms, and no counter", "check_counter")
       for direction in ("tx", "rx")},
    'lockstep_gpu_nvlink_errors_total{kind="ecc"}': ("`nvlink -e` does not tell them", "check_counter"),
    "lockstep_gpu_xid_last_timestamp_seconds": ("the driver's log alone has them, and no test causes one", None),
}
LABELS = {"model": "name", "driver": "driver_version", "pci_bus_id": "pci.bus_id"}  # of lockstep_gpu_info
WORDS = {"No": 0, "Yes": 1,
         "None": 0, "Reset": 1, "GPU Reset": 1, "Reboot": 2, "Node Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
MOST = 4e11  # bytes a second that nothing sends over PCIe


def catalogue():
    """Every series that the source of /metrics has of a GPU, but lockstep_gpu_info; and how many metrics it makes them of."""
    text = EXPOSITION.read_text(encoding="utf-8")
    rows = re.findall(r'\{(\w+),\s*"(lockstep_gpu_\w+)",\s*(kGauge|kCounter),(.*?)\}', text, re.DOTALL)
    out = set(re.findall(r'text\.family\("(lockstep_gpu_\w+)"', text))
    for _, family, kind, rest in rows:
        own = re.findall(r'"(\w+)"', rest)
        out.add(family + ("_total" if kind == "kCounter" else "") + (f'{{{own[0]}="{own[1]}"}}' if own else ""))
    return out, len(rows)


class Catalogue(unittest.TestCase):
    def test_every_series_is_compared_or_said_not_to_be_and_why(self):
        series, metrics = catalogue()
        header = (harness.SOURCE / "job" / "model" / "wire" / "gpu_batch.hpp").read_text(encoding="utf-8")
        self.assertEqual(metrics, int(re.search(r"kGpuMetrics = (\d+)", header)[1]))
        self.assertEqual(len(series), metrics + 1, "and the XIDs")
        compared = [row.series for row in COMPARED]
        self.assertEqual(sorted([*compared, *WITHOUT]), sorted(series))


class Smi:
    def __init__(self, command, environment):
        self.command, self.environment = command, environment
        asked = [row.ask for row in COMPARED if isinstance(row.ask, str) and "/" not in row.ask]
        # An older or newer one that does not know one of them has none of all that are asked for at once.
        self.known = [field for field in (*asked, *LABELS.values()) if self.query(field) is not None]

    def say(self, *arguments):
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False, env=self.environment)
        return done.stdout if done.returncode == 0 else None

    def query(self, *fields):
        """{uuid: [text]}; None if it does not know them."""
        said = self.say(f"--query-gpu={','.join(('uuid', *fields))}", "--format=csv,noheader,nounits")
        rows = [line.split(", ") for line in (said or "").splitlines()]
        return {row[0]: row[1:] for row in rows} if rows and all(len(row) == len(fields) + 1 for row in rows) else None

    def look(self):
        """{uuid: {ask: text}} of all that it says."""
        out = {uuid: dict(zip(self.known, texts, strict=True)) for uuid, texts in self.query(*self.known).items()}
        said = self.say("-q", "-x")
        for gpu in xml.etree.ElementTree.fromstring(said).iter("gpu") if said else ():
            for row in COMPARED:
                if "/" in row.ask and gpu.findtext("uuid") in out:
                    out[gpu.findtext("uuid")][row.ask] = gpu.findtext(row.ask)
        of_links = [row.ask for row in COMPARED if isinstance(row.ask, tuple)]
        for command in dict.fromkeys(command for command, _ in of_links):
            for gpu in re.split(r"(?m)^(?=GPU \d+:)", self.say(*command.split()) or ""):
                uuid = re.match(r".*UUID: ([^)]+)\)", gpu)
                for ask in of_links:
                    numbers = re.findall(ask[1], gpu) if ask[0] == command and uuid and uuid[1] in out else ()
                    if numbers:
                        out[uuid[1]][ask] = str(sum(map(int, numbers)))
        return out


def number(text):
    text = (text or "").strip().strip("[]")
    return float(WORDS[text]) if text in WORDS else float(text) if re.fullmatch(r"[0-9.]+", text) else None


class Beside:
    """A mixin: smi_command() says how nvidia-smi is called."""

    SECONDS = 20
    ENERGY_SECONDS = 6

    def look(self):
        """{uuid: {series: value}} of /metrics, and {uuid: labels}."""
        values, infos = {}, {}
        for family, text, value in re.findall(r"(?m)^(lockstep_gpu_\w+)\{(.*)\} (\S+)$", self.daemon.text("/metrics")):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
            gpu = labels.pop("node"), labels.pop("gpu")
            if family == "lockstep_gpu_info":
                infos[gpu] = labels
            elif "xid" not in labels:
                own = ",".join(f'{name}="{word}"' for name, word in labels.items())
                values.setdefault(gpu, {})[family + (f"{{{own}}}" if own else "")] = float(value)
        return ({infos[gpu]["uuid"]: of_gpu for gpu, of_gpu in values.items() if gpu in infos},
                {labels["uuid"]: labels for labels in infos.values()})

    def see(self):
        self.smi = Smi(self.smi_command(), self.daemon.environment())
        gpus = set(self.smi.query())
        harness.wait_until(lambda: set(self.look()[0]) == gpus, 30, f"the agent has looked at {gpus}")
        for uuid, said in self.smi.look().items():
            for label, field in LABELS.items():
                self.assertEqual(self.look()[1][uuid][label], said[field], f"lockstep_gpu_info's {label} of {uuid}")

    def compare(self):
        """[(GPU, series, ours, nvidia-smi's)] of what differs, and the series that were compared, of whatever GPU; one that moves
        has until SECONDS."""
        left, compared, until = None, set(), time.monotonic() + self.SECONDS
        while True:
            smi, (metrics, _), differ = self.smi.look(), self.look(), []
            for uuid, row in left or [(uuid, row) for uuid in smi for row in COMPARED]:
                theirs, ours = number(smi[uuid].get(row.ask)), metrics.get(uuid, {}).get(row.series)
                what = f"{uuid}: {row.series} {ours}, nvidia-smi's {row.ask} {smi[uuid].get(row.ask, 'is not known to it')}"
                if theirs is None:
                    print(f"NOT COMPARED: {what}")
                elif ours is None or abs(ours - theirs * row.unit) > row.slack + row.share * abs(ours):
                    differ.append(((uuid, row), (uuid, row.series, ours, theirs * row.unit)))
                else:
                    compared.add(row.series)
                    print(what)
            left = [key for key, _ in differ]
            if not left or time.monotonic() > until:
                return [words for _, words in differ], compared

    def check_all(self):
        """The series of a GPU that nvidia-smi has no value of."""
        for series, (why, check) in WITHOUT.items():
            print(f"{series} is not compared: {why}")
            if check:
                getattr(self, check)(series)

    def of_every_gpu(self, series):
        return {uuid: values[series] for uuid, values in self.look()[0].items() if series in values}

    def check_ratio(self, series):
        found = self.of_every_gpu(series)
        print(found or f"{series} is not there: no GPM (Hopper and newer)")
        self.assertTrue(all(0 <= value <= 1 for value in found.values()), f"{series} {found}")

    def check_counter(self, series):
        before = self.of_every_gpu(series)
        began = time.monotonic()
        time.sleep(1.5)
        after = self.of_every_gpu(series)
        print(after or f"{series} is not there")
        for uuid, value in before.items():
            self.assertTrue(0 <= value <= after[uuid] <= value + MOST * (time.monotonic() - began), f"{series} {before} {after}")

    def next_look(self, series):
        """The values of a look that is just over: they move with every one."""
        before = self.of_every_gpu(series)
        return harness.wait_until(lambda: (now := self.of_every_gpu(series)) != before and now, 20, f"{series} moves"), time.monotonic()

    def check_energy(self, series):
        if not self.of_every_gpu(series):
            print(f"{series} is not there")
            return
        before, began = self.next_look(series)
        watts = {}
        while time.monotonic() < began + self.ENERGY_SECONDS:
            for uuid, said in self.smi.query("power.draw.instant").items():
                watts.setdefault(uuid, []).append(number(said[0]))
            time.sleep(0.2)
        after, ended = self.next_look(series)
        for uuid, joules in before.items():
            mean, ours = sum(watts[uuid]) / len(watts[uuid]), (after[uuid] - joules) / (ended - began)
            print(f"{uuid}: {series} grows by {ours:g} W, nvidia-smi's mean of {len(watts[uuid])} looks {mean:g} W")
            self.assertLess(abs(ours - mean), 15 + 0.25 * mean, uuid)


# What stands in for nvidia-smi: {gpus}.json has the text of every field of every GPU.
DOUBLE = """#!{python}
import json, sys
gpus, asked = json.load(open("{root}/smi.json")), sys.argv[1:]
if asked[0].startswith("--query-gpu="):
    fields = asked[0].partition("=")[2].split(",")
    for field in fields:
        if field not in gpus[0]:
            sys.exit(print(f'Field "{{field}}" is not a valid field to query.') or 2)
    for gpu in gpus:
        print(", ".join(gpu[field] for field in fields))
elif asked == ["-q", "-x"]:
    print('<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>')
    for gpu in gpus:
        print(f"<gpu><uuid>{{gpu['uuid']}}</uuid><gpu_recovery_action>{{gpu['recovery']}}</gpu_recovery_action>"
              f"<pci><replay_counter>{{gpu['replays']}}</replay_counter></pci></gpu>")
    print("</nvidia_smi_log>")
else:
    for i, gpu in enumerate(gpus):
        print(f"GPU {{i}}: Fake (UUID: {{gpu['uuid']}})")
        print("\\n".join(f"\\t Link {{link}}: {{words}}" for link in range(2) for words in gpu[" ".join(asked)]))
"""


class WithTheFake(Beside, test_gpus.GpuCase):
    SECONDS = 3
    ENERGY_SECONDS = 3

    def setUp(self):
        self.lock, over = threading.Lock(), threading.Event()
        super().setUp()

        def use_energy():
            began = time.monotonic()
            while not over.wait(0.05):
                with self.lock:
                    self.lines = [line for line in self.lines if " field 83 " not in line]
                    super(WithTheFake, self).write(f"gpu * field 83 long {int(100e3 * (time.monotonic() - began))}")  # 100 W
        thread = threading.Thread(target=use_energy)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(over.set)

    def write(self, *more):
        with self.lock:
            super().write(*more)

    def smi_command(self):
        program = self.root / "nvidia-smi"
        program.write_text(DOUBLE.format(python=harness.PYTHON, root=self.root))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.gpus = [{
            "uuid": f"GPU-fake-{i}", "name": "Fake H100 80GB", "driver_version": "570.1.fake", "pci.bus_id": f"00000000:0{i + 1}:00.0",
            "utilization.gpu": "50", "memory.total": "81920", "memory.used": "1024", "power.draw.instant": "100.00",
            "enforced.power.limit": "700.00", "temperature.gpu": "41", "temperature.memory": "[N/A]", "clocks.sm": "1500",
            "clocks.mem": "2619", "ecc.errors.corrected.volatile.total": "7", "ecc.errors.uncorrected.volatile.total": "0",
            "remapped_rows.correctable": "1", "remapped_rows.uncorrectable": "2", "remapped_rows.pending": "Yes",
            "clocks_event_reasons_counters.sw_power_cap": "5000000", "clocks_event_reasons_counters.sync_boost": "6000000",
            "clocks_event_reasons_counters.sw_thermal_slowdown": "7000000",
            "clocks_event_reasons_counters.hw_thermal_slowdown": "8000000",
            "clocks_event_reasons_counters.hw_power_brake_slowdown": "9000000",
            "recovery": "Drain and Reset", "replays": "12",
            "nvlink -gt d": ["Data Tx: 1048576 KiB", "Data Rx: 2097152 KiB"],
            "nvlink -e": ["Replay Errors: 99", "Recovery Errors: 1", "CRC Errors: 99", "Rx remote Errors: 2", "Rx General Errors: 3",
                          "Local link integrity Errors: 4", "Tx discards: 5", "Link recovery failed events: 6"]} for i in range(8)]
        self.tell()
        return [program]

    def tell(self):
        harness.write_whole(self.root / "smi.json", json.dumps(self.gpus))

    def test_every_value_of_every_gpu_is_that_of_the_double_of_nvidia_smi(self):
        self.write(f"gpu * memory {1024 * MIB} {81920 * MIB}", "gpu * temperature 41", "gpu * clock 1500 2619",
                   *(f"gpu * field {field} long {value}" for field, value in (
                       (3, 7), (142, 1), (143, 2), (144, 1), (74, 5 * 10**9), (76, 6 * 10**9), (251, 7 * 10**9), (252, 8 * 10**9),
                       (253, 9 * 10**9), (94, 12), (230, 4), (138, 2 << 20), (139, 4 << 20), (59, 2), (209, 4), (210, 6), (211, 8),
                       (212, 10), (214, 12))))
        job = self.submit(nodes=1, ranks=1)
        self.see()
        differ, compared = self.compare()
        self.assertEqual(differ, [])
        # The double knows one of them as "[N/A]" and one not at all: all others are compared nevertheless.
        self.assertEqual({row.series for row in COMPARED} - compared,
                         {'lockstep_gpu_temperature_celsius{sensor="memory"}', "lockstep_gpu_row_remap_failure"})
        self.check_all()
        self.gpus[5] |= {"clocks.sm": "300", "replays": "13", "nvlink -e": []}
        self.tell()
        differ, _ = self.compare()
        self.assertEqual(differ, [("GPU-fake-5", 'lockstep_gpu_clock_hertz{domain="sm"}', 1.5e9, 3e8),
                                  ("GPU-fake-5", "lockstep_gpu_pcie_replays_total", 12, 13)])
        self.finish(job)

    def test_joules_that_are_not_the_power_are_seen(self):
        job = self.submit(nodes=1, ranks=1)
        self.see()
        for gpu in self.gpus:
            gpu["power.draw.instant"] = "250.00"
        self.tell()
        with self.assertRaisesRegex(AssertionError, "GPU-fake-0"):
            self.check_energy("lockstep_gpu_energy_joules_total")
        self.finish(job)


# Fills memory of every GPU again and again once there is a file `load`, until there is one `go`.
LOAD = """
import ctypes, os, sys, time
go, load = sys.argv[1:]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: error {code}")
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
while not os.path.exists(load) and not os.path.exists(go):
    time.sleep(0.02)
places = []
for i in range(count.value):
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), i)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1 << 30))
    places.append((context, address))
while not os.path.exists(go):
    for context, address in places:
        call("cuCtxSetCurrent", context)
        for _ in range(50):
            call("cuMemsetD32_v2", address, ctypes.c_uint(1), ctypes.c_size_t(1 << 28))
    for context, _ in places:
        call("cuCtxSetCurrent", context)
        call("cuCtxSynchronize")
"""


@gpu_tests.needs_gpu
class WithARealGpu(Beside, harness.TestCase):
    def setUp(self):
        why = gpu_tests.no_gpu() or ("" if shutil.which("nvidia-smi") else "a GPU, but no nvidia-smi")
        if why:
            self.skipTest(why)
        super().setUp()

    def smi_command(self):
        return [shutil.which("nvidia-smi")]

    def test_every_value_of_every_gpu_is_nvidia_smis_idle_and_at_work(self):
        go, load = self.root / "go", self.root / "load"
        job = self.daemon.submit(harness.command_job(
            "looked-at", harness.PYTHON, "-c", LOAD, go, load,
            resources={"nodes": 1, "ranks_per_node": 1, "gpus_per_node": gpu_tests.gpus()}))["id"]
        self.see()
        for state in ("idle", "at work"):
            print(state)
            if state == "at work":
                load.touch()
                # A GPU that is divided into slices tells no utilization.
                harness.wait_until(lambda: min(self.of_every_gpu("lockstep_gpu_utilization_ratio").values(), default=1) > 0.5 or
                                   self.daemon.job(job)["state"] in harness.FINAL, 30, "the GPUs work")
                self.assertEqual(self.daemon.job(job)["state"], "running", self.daemon.rank_log(job))
            differ, compared = self.compare()
            gpu_tests.figure(f"NVML's series that are nvidia-smi's, {state}", len(compared), f"of {len(COMPARED)}")
            self.assertEqual(differ, [], "GPU, series, ours, nvidia-smi's")
            self.assertLessEqual(ALWAYS, compared)
            self.check_all()
        go.touch()
        self.assertEqual(self.daemon.wait_state(job, harness.FINAL, 60)["state"], "succeeded")


if __name__ == "__main__":
    harness.main()
