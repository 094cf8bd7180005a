"""The job of chaos.py: synchronous SGD with momentum in plain Python, one hub and no library, so that 32 ranks fit on two cores.

    chaos_script.py FOLDER STEPS PERIOD

Rank 0 is the hub: every step it receives the gradient of each rank over a connection of its own, adds them up in the
order of the ranks, and sends the sum back. Every 5 steps it writes FOLDER/checkpoint, from which all ranks begin. It makes
a step every PERIOD seconds (0: as fast as it can) and ends after STEPS, or after the step that FOLDER/last names. FOLDER/progress
has the generation, the step it began after and the newest; FOLDER/final-<rank> the weights at the end, bit by bit.
"""

import array
import os
import pathlib
import socket
import sys
import time

import lockstep

SIZE, EVERY, RATE, MOMENTUM = 64, 5, 0.05, 0.9
folder, steps, period = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
generation = int(os.environ["LOCKSTEP_GENERATION"])


def receive(peer, size):
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("Connection closed by peer")
        data += piece
    return bytes(data)


def meet():
    """The connections of the hub by rank, or the one to the hub."""
    if rank == 0:
        peers = {}
        with socket.create_server(address, backlog=world, reuse_port=False) as server:
            while len(peers) < world - 1:
                peer, _ = server.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[int.from_bytes(receive(peer, 4), "little")] = peer
        return [peers[number] for number in sorted(peers)]
    deadline = time.monotonic() + 60
    while True:
        try:
            hub = socket.create_connection(address, timeout=60)
            hub.settimeout(None)
            hub.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hub.sendall(rank.to_bytes(4, "little"))
            return [hub]
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def gradient(weights, step):
    """Of this rank's sample of this step: least squares against a known vector."""
    seed = step * 1_000_003 + rank * 7919
    sample = []
    for _ in range(SIZE):
        seed = (seed * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        sample.append(seed / 0x40000000 - 1.0)
    wrong = sum(w * x for w, x in zip(weights, sample)) - sum(x * (i % 7 - 3) for i, x in enumerate(sample))
    return array.array("d", [wrong * x for x in sample]), wrong * wrong


def all_reduce(peers, own, last):
    """(the sum of all ranks', the number of the last step)"""
    if rank == 0:
        total = list(own)
        for peer in peers:
            for i, value in enumerate(array.array("d", receive(peer, 8 * SIZE))):
                total[i] += value
        message = array.array("d", [float(last), *total]).tobytes()
        for peer in peers:
            peer.sendall(message)
        return total, last
    peers[0].sendall(own.tobytes())
    message = array.array("d", receive(peers[0], 8 * (SIZE + 1)))
    return message[1:], int(message[0])


def write(name, data):
    new = folder / f"{name}.new"
    new.write_bytes(data)
    new.rename(folder / name)


def last_step():
    try:
        return min(steps, int((folder / "last").read_text()))
    except (OSError, ValueError):
        return steps


def main():
    step, weights, speed = 0, array.array("d", [0.0] * SIZE), array.array("d", [0.0] * SIZE)
    if (folder / "checkpoint").exists():
        state = array.array("d", (folder / "checkpoint").read_bytes())
        step, weights, speed = int(state[0]), state[1:SIZE + 1], state[SIZE + 1:]
    peers = meet()
    first, last, due = step, steps, time.monotonic()
    while step < last:
        step += 1
        own, loss = gradient(weights, step)
        total, last = all_reduce(peers, own, last_step() if rank == 0 else 0)
        for i in range(SIZE):
            speed[i] = MOMENTUM * speed[i] + total[i] / world
            weights[i] -= RATE * speed[i]
        lockstep.report(step=step, loss=loss)
        if rank == 0:
            if step % EVERY == 0:
                write("checkpoint", array.array("d", [float(step), *weights, *speed]).tobytes())
            write("progress", f"{generation} {first} {step}".encode())
            due = max(due + period, time.monotonic() - period)
            time.sleep(max(0.0, due - time.monotonic()))
    write(f"final-{rank}", f"{step} {weights.tobytes().hex()}".encode())


main()
