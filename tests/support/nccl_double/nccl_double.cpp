// size: the functions of NCCL that Lockstep calls, and what a test may have them do wrong
// A DOUBLE of NCCL and of the CUDA driver for machines without a GPU: the functions that Lockstep
// calls, over sockets and host memory. What passes with it proves the order of Lockstep's calls and
// what it does when they fail, and nothing of NCCL itself.
//
// Operations are done by a thread of the communicator, in their order; streams and events only say
// how far it has come. Each is in progress at first, as NCCL says of a communicator that does not
// block; the thread that called it is told at its next question that it was taken.
// LOCKSTEP_NCCL_DOUBLE, words separated by spaces, makes things go wrong:
//   version=21000       what ncclGetVersion says
//   no-init:R           ncclCommInitRank… of rank R never begins to connect
//   error:R:N:C         operation N (from 1) of rank R ends in the asynchronous error C
//   stuck:R:N           operation N of rank R is never sent
//   connects:R:N        operation N of rank R is in progress for ever for who called it: NCCL makes
//                       connections, and another rank does not
//   slow=MS             every operation of this process takes MS ms more for each MiB of its data
//   wrong=N             the first byte of what operation N gives to this process is another one
//   die=N               operation N ends this process (SIGKILL)
//   diag=1              its diagnostics, where they are asked for, find another model of GPU
//   ras-json=0          its RAS is that of NCCL before 2.28.7
//   gpus=N              how many GPUs there are (default 8); driver=C: what cuInit answers
#include "job/collective/communicator.hpp"
#include "job/collective/nccl_abi.hpp"
#include "tests/support/nccl_double/hub.hpp"
#include "tests/support/nccl_double/ras.hpp"
#include "tests/support/nccl_double/state.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace nccl_double;
using lockstep::Dtype;
using lockstep::ReduceOp;
namespace nccl = lockstep::nccl;

struct Id {
    char nonce[32];
    std::uint16_t port;
};

struct Operation {
    Header header;
    std::vector<char> data;
    void* out = nullptr;
    std::shared_ptr<Done> done;
};

}  // namespace

namespace lockstep::nccl {
// The name is declared in nccl_abi.hpp.
struct OpaqueComm {
    Id id{};
    std::vector<Id> all;  // if there are several
    std::string group;
    int rank = 0;
    int ranks = 0;
    int ids = 1;
    int fd = -1;
    std::mutex mutex;  // guards the rest
    std::condition_variable changed;
    std::deque<Operation> queue;
    long called = 0;
    long sent = 0;
    bool stop = false;
    std::atomic<bool> revoked{false};
    std::atomic<int> state{kInProgress};
    std::thread shrinking;
    std::thread worker;
    nccl_double::RasSlot* ras = nullptr;  // null: no RAS
};
}  // namespace lockstep::nccl

namespace {

// Whose operation this thread was told is in progress.
thread_local nccl::Comm entering = nullptr;

// Of several ids each brings its share of the ranks together, so that a wrong one is noticed.
bool meet_at_own_root(nccl::OpaqueComm& comm) {
    if (comm.all.empty()) {
        return true;
    }
    Hello hello{{}, {}, comm.rank, comm.ranks, comm.ids, comm.ids - 1};
    while (first_rank(hello.root, comm.ranks, comm.ids) > comm.rank) {
        --hello.root;
    }
    const Id& id = comm.all[static_cast<std::size_t>(hello.root)];
    std::memcpy(hello.nonce, id.nonce, sizeof hello.nonce);
    return meet_at_root(id.port, hello, [&] {
        const std::lock_guard lock{comm.mutex};
        return comm.stop;
    });
}

void connect_comm(nccl::OpaqueComm& comm) {
    const bool connected = meet_at_own_root(comm) && connect_to(comm.fd, comm.id.port);
    {
        // A shutdown() that came before the connection did nothing.
        const std::lock_guard lock{comm.mutex};
        if (comm.stop) {
            return;
        }
    }
    Hello hello;
    std::memcpy(hello.nonce, comm.id.nonce, sizeof hello.nonce);
    std::snprintf(hello.group, sizeof hello.group, "%s", comm.group.c_str());
    hello.rank = comm.rank;
    hello.ranks = comm.ranks;
    hello.ids = comm.ids;
    Header ready;
    if (!connected || !write_exactly(comm.fd, &hello, sizeof hello) ||
        !read_exactly(comm.fd, &ready, sizeof ready)) {
        comm.state = nccl::kRemoteError;
        return;
    }
    comm.state = nccl::kSuccess;
    joined_ras(comm.ras);
}

void misbehave(const Operation& operation, long number) {
    if (const auto die = directive("die"); !die.empty() && die[0] == number) {
        std::raise(SIGKILL);
    }
    if (const auto slow = directive("slow"); !slow.empty()) {
        const auto per_mib = std::chrono::milliseconds{slow[0]};
        std::this_thread::sleep_for(per_mib * static_cast<double>(operation.data.size()) /
                                    static_cast<double>(1U << 20U));
    }
}

void work(nccl::OpaqueComm& comm) {
    if (directive("no-init", comm.rank).empty()) {
        connect_comm(comm);
    }
    std::unique_lock lock{comm.mutex};
    for (;;) {
        comm.changed.wait(lock, [&] { return comm.stop || !comm.queue.empty(); });
        if (comm.stop) {
            return;
        }
        Operation operation = std::move(comm.queue.front());
        comm.queue.pop_front();
        const long number = ++comm.sent;
        lock.unlock();
        const bool first = comm.group.empty();  // what has shrunk works
        const auto error = first ? directive("error", comm.rank) : std::vector<long>{};
        const auto stuck = first ? directive("stuck", comm.rank) : std::vector<long>{};
        bool good = true;
        misbehave(operation, number);
        if (error.size() == 3 && error[1] == number) {
            comm.state = static_cast<int>(error[2]);
            good = false;
        } else if (stuck.size() == 2 && stuck[1] == number) {
            good = false;
        } else if (comm.state == nccl::kSuccess) {
            Header header = operation.header;
            good = write_exactly(comm.fd, &header, sizeof header) &&
                   write_exactly(comm.fd, operation.data.data(), operation.data.size()) &&
                   read_exactly(comm.fd, &header, sizeof header) &&
                   header.kind != static_cast<Kind>(kLost) &&
                   read_exactly(comm.fd, operation.out, header.bytes);
            if (!good && !comm.revoked) {
                comm.state = nccl::kRemoteError;
            }
        }
        lock.lock();
        if (good) {
            if (const auto wrong = directive("wrong"); !wrong.empty() && wrong[0] == number) {
                static_cast<char*>(operation.out)[0] ^= 1;
            }
            operation.done->done = true;
        } else {
            comm.changed.wait(lock, [&] { return comm.stop; });
        }
    }
}

nccl::Result begin(nccl::Comm* out, Id id, std::string group, int rank, int ranks,
                   std::vector<Id> all = {}) {
    entering = nullptr;
    auto comm = std::make_unique<nccl::OpaqueComm>();
    comm->id = id;
    comm->all = std::move(all);
    comm->group = std::move(group);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->ids = std::max(static_cast<int>(comm->all.size()), 1);
    comm->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    comm->ras = register_with_ras(std::string{id.nonce} + comm->group, rank, ranks);
    comm->worker = std::thread{[at = comm.get()] { work(*at); }};
    *out = comm.release();
    return nccl::kInProgress;
}

nccl::Result end(nccl::Comm comm) {
    leave_ras(comm->ras);
    {
        const std::lock_guard lock{comm->mutex};
        comm->stop = true;
    }
    comm->changed.notify_all();
    ::shutdown(comm->fd, SHUT_RDWR);
    comm->worker.join();
    if (comm->shrinking.joinable()) {
        comm->shrinking.join();
    }
    ::close(comm->fd);
    delete comm;
    return nccl::kSuccess;
}

Dtype dtype(nccl::Type type) {
    switch (type) {
        case nccl::kU8:
            return Dtype::u8;
        case nccl::kI32:
            return Dtype::i32;
        case nccl::kI64:
            return Dtype::i64;
        case nccl::kF16:
            return Dtype::f16;
        case nccl::kF32:
            return Dtype::f32;
        case nccl::kF64:
            return Dtype::f64;
        case nccl::kBf16:
            return Dtype::bf16;
    }
    return Dtype::u8;
}
ReduceOp reduce_op(nccl::Op op) {
    constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::max, ReduceOp::min,
                                 ReduceOp::average};
    return kOps[static_cast<std::size_t>(op)];
}

bool connects_for_ever(nccl::Comm comm) {
    const auto wanted = directive("connects", comm->rank);
    const std::lock_guard lock{comm->mutex};
    return wanted.size() == 2 && wanted[1] == comm->called;
}

nccl::Result put(nccl::Comm comm, void* stream, Kind kind, const void* in, std::size_t in_count,
                 void* out, std::size_t count, nccl::Type type, nccl::Op op, int peer) {
    Operation operation;
    operation.header.kind = kind;
    operation.header.type = static_cast<std::int32_t>(dtype(type));
    operation.header.op = static_cast<std::int32_t>(reduce_op(op));
    operation.header.peer = peer;
    operation.header.count = count;
    const auto* bytes = static_cast<const char*>(in);
    operation.data.assign(bytes, bytes + in_count * lockstep::size_of(dtype(type)));
    operation.header.bytes = operation.data.size();
    operation.out = out;
    operation.done = std::make_shared<Done>();
    set_newest(stream, operation.done);
    count_launch(comm->ras, kind);
    {
        const std::lock_guard lock{comm->mutex};
        ++comm->called;
    }
    entering = comm;
    if (connects_for_ever(comm)) {
        return nccl::kInProgress;
    }
    {
        const std::lock_guard lock{comm->mutex};
        comm->queue.push_back(std::move(operation));
    }
    comm->changed.notify_all();
    return nccl::kInProgress;
}

}  // namespace

DOUBLE nccl::Result ncclGetVersion(int* version) {
    const auto said = directive("version");
    *version = said.empty() ? 23203 : static_cast<int>(said[0]);
    return nccl::kSuccess;
}
DOUBLE nccl::Result ncclGetUniqueId(nccl::UniqueId* out) {
    Id id{};
    std::random_device random;
    std::snprintf(id.nonce, sizeof id.nonce, "%08x%08x%08x", random(), random(), random());
    id.port = start_hub(id.nonce);
    std::memset(out->internal, 0, sizeof out->internal);
    std::memcpy(out->internal, &id, sizeof id);
    return id.port == 0 ? nccl::kSystemError : nccl::kSuccess;
}
DOUBLE nccl::Result ncclCommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                           nccl::Config* config) {
    const char* asked = std::getenv("NCCL_RUN_RAS_DIAGNOSTICS");
    if (rank == 0 && asked != nullptr && *asked == '1' && !directive("diag").empty()) {
        std::printf(
            "double:1 NCCL DIAG [OK] ECC: no errors across %d ranks in comm 0x1f\n"
            "double:1 NCCL DIAG [INFO] GPU inventory: model mismatch across %d ranks in comm 0x1f, "
            "rank(s) 1 differ from rank 0 (NVIDIA Double)\n",
            ranks, ranks);
        std::fflush(stdout);
    }
    Id mine{};
    std::memcpy(&mine, id.internal, sizeof mine);
    return config->blocking != 0 || config->magic != 0xcafebeef
               ? nccl::kInvalidArgument
               : begin(comm, mine, "", rank, ranks);
}
DOUBLE nccl::Result ncclCommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int count,
                                             nccl::UniqueId* ids, nccl::Config* /*config*/) {
    if (count < 1 || count > ranks) {
        return nccl::kInvalidArgument;
    }
    std::vector<Id> all(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < all.size(); ++i) {
        std::memcpy(&all[i], ids[i].internal, sizeof all[i]);
    }
    return begin(comm, all.front(), "", rank, ranks, all);
}
DOUBLE nccl::Result ncclCommShrink(nccl::Comm comm, int* gone, int count, nccl::Comm* out,
                                   nccl::Config* /*config*/, int /*flags*/) {
    std::string group = comm->group + "-";
    for (int i = 0; i < count; ++i) {
        group += std::to_string(gone[i]) + ".";
    }
    if (comm->state != nccl::kSuccess) {
        return static_cast<nccl::Result>(comm->state.load());
    }
    const auto before =
        std::count_if(gone, gone + count, [&](int rank) { return rank < comm->rank; });
    nccl::Comm child = nullptr;
    begin(&child, comm->id, group, comm->rank - static_cast<int>(before), comm->ranks - count);
    // As NCCL: the parent is in progress, and the child appears when it is ready.
    *out = nullptr;
    comm->state = nccl::kInProgress;
    comm->shrinking = std::thread{[comm, child, out] {
        while (child->state == nccl::kInProgress) {
            std::this_thread::yield();
        }
        *out = child;
        comm->state = child->state.load();
    }};
    return nccl::kInProgress;
}
DOUBLE nccl::Result ncclCommRevoke(nccl::Comm comm, int /*flags*/) {
    comm->revoked = true;
    ::shutdown(comm->fd, SHUT_RD);  // of this rank alone: the others do not take it for lost
    return nccl::kSuccess;
}
DOUBLE nccl::Result ncclCommFinalize(nccl::Comm comm) {
    const std::lock_guard lock{comm->mutex};
    return comm->queue.empty() ? nccl::kSuccess : nccl::kInProgress;
}
DOUBLE nccl::Result ncclCommDestroy(nccl::Comm comm) {
    return end(comm);
}
DOUBLE nccl::Result ncclCommAbort(nccl::Comm comm) {
    return end(comm);
}
DOUBLE nccl::Result ncclCommGetAsyncError(nccl::Comm comm, nccl::Result* state) {
    if (entering == comm && connects_for_ever(comm)) {
        *state = nccl::kInProgress;
        return nccl::kSuccess;
    }
    if (entering == comm) {
        entering = nullptr;
        *state = nccl::kSuccess;
        return nccl::kSuccess;
    }
    *state = static_cast<nccl::Result>(comm->state.load());
    return nccl::kSuccess;
}
DOUBLE const char* ncclGetErrorString(nccl::Result code) {
    constexpr const char* kNames[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
    return kNames[static_cast<std::size_t>(code)];
}
DOUBLE const char* ncclGetLastError(nccl::Comm /*comm*/) {
    return "said by the NCCL double";
}

DOUBLE nccl::Result ncclAllReduce(const void* in, void* out, std::size_t count, nccl::Type type,
                                  nccl::Op op, nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::all_reduce, in, count, out, count, type, op, 0);
}
DOUBLE nccl::Result ncclReduce(const void* in, void* out, std::size_t count, nccl::Type type,
                               nccl::Op op, int root, nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::reduce, in, count, out, count, type, op, root);
}
DOUBLE nccl::Result ncclBroadcast(const void* in, void* out, std::size_t count, nccl::Type type,
                                  int root, nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::broadcast, in, count, out, count, type, nccl::kSum, root);
}
DOUBLE nccl::Result ncclAllGather(const void* in, void* out, std::size_t count, nccl::Type type,
                                  nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::all_gather, in, count, out, count, type, nccl::kSum, 0);
}
DOUBLE nccl::Result ncclReduceScatter(const void* in, void* out, std::size_t count, nccl::Type type,
                                      nccl::Op op, nccl::Comm comm, void* stream) {
    const auto ranks = static_cast<std::size_t>(comm->ranks);
    return put(comm, stream, Kind::reduce_scatter, in, count * ranks, out, count, type, op, 0);
}
DOUBLE nccl::Result ncclSend(const void* in, std::size_t count, nccl::Type type, int peer,
                             nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::send, in, count, nullptr, count, type, nccl::kSum, peer);
}
DOUBLE nccl::Result ncclRecv(void* out, std::size_t count, nccl::Type type, int peer,
                             nccl::Comm comm, void* stream) {
    return put(comm, stream, Kind::recv, nullptr, 0, out, count, type, nccl::kSum, peer);
}
