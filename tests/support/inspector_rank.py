"""A rank without a GPU whose operations NCCL's Inspector measures: `python3 inspector_rank.py OPERATIONS [DOUBLE]`.

Without DOUBLE it drives the plugin NCCL_PROFILER_PLUGIN as NCCL does (its profiler interface, version 7 or 5): what is posted
then, and how, is NVIDIA's. Each operation is an all-reduce of rank + 1 MiB that took 500 µs of "GPU time". With DOUBLE, a
body that the plugin has posted (tests/fixtures/inspector), it is the DOUBLE of the plugin: it posts that body each second with its
bandwidths times rank + 1, with the plugin's head. With either it reports a step now and then, so that /metrics has it."""

import ctypes
import json
import os
import pathlib
import socket
import sys
import time

import lockstep

COLL, KERNEL_CHANNEL, KERNEL_CHANNEL_STOP = 1 << 1, 1 << 6, 22
EVERY_SECONDS = 0.05


class Collective(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("func", ctypes.c_char_p), ("send", ctypes.c_void_p), ("recv", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("root", ctypes.c_int), ("datatype", ctypes.c_char_p), ("channels", ctypes.c_uint8),
                ("warps", ctypes.c_uint8), ("algo", ctypes.c_char_p), ("proto", ctypes.c_char_p), ("group", ctypes.c_void_p),
                # From version 7 on; what is before it has stayed where it was.
                ("variant", ctypes.c_char_p), ("symmetric", ctypes.c_bool), ("tag", ctypes.c_uint64)]


class KernelChannel(ctypes.Structure):
    _fields_ = [("channel", ctypes.c_uint8), ("timer", ctypes.c_uint64)]


class Kind(ctypes.Union):
    _fields_ = [("coll", Collective), ("kernel", KernelChannel)]


class Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint64), ("parent", ctypes.c_void_p), ("rank", ctypes.c_int), ("kind", Kind)]


class State(ctypes.Union):
    _fields_ = [("timer", ctypes.c_uint64), ("data", ctypes.c_void_p)]


# Variadic in C: what it is given beyond the format is not read.
LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)


class Plugin(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p),
                ("init", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64,
                                          ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
                                          ctypes.c_int, LOGGER)),
                ("start", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
                                           ctypes.POINTER(Event))),
                ("stop", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
                ("record", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(State))),
                ("finalize", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p))]


class Inspector:
    def __init__(self, path, rank, ranks, nodes, communicator=0xabcd, name=b"tp0"):
        self.library = ctypes.CDLL(path)
        # The sources at 12df1a1 have version 5, those at 8224472 version 7, which only an NCCL loads that knows it.
        known = [name for name in ("ncclProfiler_v7", "ncclProfiler_v5") if hasattr(self.library, name)]
        self.plugin = Plugin.in_dll(self.library, known[0])
        self.log = LOGGER(lambda *_words: print("plugin:", _words[4].decode(), flush=True))
        self.context, self.rank = ctypes.c_void_p(), rank
        wanted = ctypes.c_int()
        self.plugin.init(ctypes.byref(self.context), communicator, ctypes.byref(wanted), name, nodes, ranks, rank, self.log)
        if not self.context.value:
            raise RuntimeError("the plugin does not want to look at this communicator")
        self.number = 0

    def operation(self, func, size, microseconds):
        self.number += 1
        event, handle, kernel = Event(type=COLL, rank=self.rank), ctypes.c_void_p(), ctypes.c_void_p()
        event.kind.coll = Collective(number=self.number, func=func, count=size // 4, datatype=b"ncclFloat32", channels=1,
                                     warps=4, algo=b"RING", proto=b"SIMPLE")
        self.plugin.start(self.context, ctypes.byref(handle), ctypes.byref(event))
        began = time.monotonic_ns()
        channel = Event(type=KERNEL_CHANNEL, parent=handle, rank=self.rank)
        channel.kind.kernel = KernelChannel(channel=0, timer=began)
        self.plugin.start(self.context, ctypes.byref(kernel), ctypes.byref(channel))
        self.plugin.stop(handle)
        self.plugin.record(kernel, KERNEL_CHANNEL_STOP, ctypes.byref(State(timer=began + 1000 * microseconds)))
        self.plugin.stop(kernel)

    def close(self):
        self.plugin.finalize(self.context)


def post(body, token=None):
    """The status that the receiver answers with."""
    authority, _, path = os.environ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"].removeprefix("http://").partition("/")
    host, _, port = authority.rpartition(":")
    header, _, value = os.environ["OTEL_EXPORTER_OTLP_METRICS_HEADERS"].partition("=")
    head = (f"POST /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n{header}: {token or value}\r\n\r\n")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(head.encode() + body)
        return int(connection.recv(512).split()[1])


def double(path, rank):
    document = json.loads(pathlib.Path(path).read_text())
    for metric in document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
        for point in metric["gauge"]["dataPoints"]:
            point["asDouble"] *= rank + 1
    body = json.dumps(document, separators=(",", ":")).encode()
    print("the DOUBLE of the plugin was answered", post(body), flush=True)
    print("with another token", post(body, "Bearer " + 64 * "0"), flush=True)
    print("with something else", post(b"[]"), flush=True)
    return body


def main():
    operations, rank, ranks = int(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if "NCCL_PROFILER_PLUGIN" not in os.environ:
        print("no plugin", sorted(name for name in os.environ if name.startswith(("NCCL_INSPECTOR", "OTEL"))), flush=True)
        return
    lockstep.report(step=1)
    if len(sys.argv) > 2:
        body = double(sys.argv[2], rank)
        for number in range(operations):
            time.sleep(EVERY_SECONDS)
            if number % 20 == 19:
                post(body)
        return
    inspector = Inspector(os.environ["NCCL_PROFILER_PLUGIN"], rank, ranks, ranks // int(os.environ["LOCAL_WORLD_SIZE"]))
    for _ in range(operations):
        inspector.operation(b"AllReduce", (rank + 1) << 20, 500)
        time.sleep(EVERY_SECONDS)
    inspector.close()


if __name__ == "__main__":
    main()
