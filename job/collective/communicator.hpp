// Collective operations over the ranks of one generation, on buffers in host memory (Gloo) or in a
// GPU's memory (NCCL). Every rank makes the same calls in the same order, with the same type and
// number of values. One call at a time; the calling thread may change; abort() and async_error()
// from any thread at any moment.
//
// Host memory: a call returns when it is done. GPU memory: a call returns when the operation is
// enqueued on `stream`, and what goes wrong later is told by async_error(); the buffers must stay
// until the stream has come past it.
//
// Errors: invalid = the arguments, found on this rank before anything was sent: the communicator is
// as before. conflict = the ranks' arguments differ. unavailable = a peer was lost. timed_out = a
// peer was silent. cancelled = abort(). After any of the last four the generation is over: every
// further call returns that first error at once.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class Dtype : std::uint8_t { u8, i32, i64, f16, bf16, f32, f64 };
enum class ReduceOp : std::uint8_t { sum, product, min, max, average };  // average: f16 … f64 only
enum class Device : std::uint8_t { cpu, cuda };  // cuda: the one GPU that the communicator is for

std::size_t size_of(Dtype type);  // bytes
std::string_view to_string(Dtype type);
std::string_view to_string(ReduceOp op);
std::string_view to_string(Device device);

// Values that the caller owns. `data` is a device pointer for Device::cuda.
struct ConstBuffer {
    const void* data = nullptr;
    std::size_t count = 0;  // of values
    Dtype type = Dtype::f32;
    Device device = Device::cpu;

    std::size_t bytes() const { return count * size_of(type); }
};
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    Dtype type = Dtype::f32;
    Device device = Device::cpu;

    std::size_t bytes() const { return count * size_of(type); }
    operator ConstBuffer() const { return {data, count, type, device}; }
};
inline Buffer buffer_of(std::span<float> values) {
    return {values.data(), values.size(), Dtype::f32, Device::cpu};
}
inline Buffer buffer_of(std::span<std::byte> bytes) {
    return {bytes.data(), bytes.size(), Dtype::u8, Device::cpu};
}

// A cudaStream_t (CUstream) of the communicator's GPU; null is the default stream. Host memory has
// none.
using Stream = void*;

class Communicator {
  public:
    Communicator() = default;
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    virtual std::int32_t rank() const = 0;
    virtual std::int32_t size() const = 0;
    virtual Device device() const = 0;  // where its buffers lie

    // Every function that takes no values (count 0) returns without asking the other ranks.

    // Replaces `values` on every rank by their reduction over the ranks. The result has the same
    // bits on every rank.
    Status all_reduce(Buffer values, ReduceOp op = ReduceOp::sum, Stream stream = nullptr);
    // The same on rank `root` only; on the others `values` stay.
    Status reduce(Buffer values, std::int32_t root, ReduceOp op = ReduceOp::sum,
                  Stream stream = nullptr);
    // Replaces `values` by those of rank `root`.
    Status broadcast(Buffer values, std::int32_t root, Stream stream = nullptr);
    // `all` = every rank's `mine`, in the order of the ranks: all.count = size() * mine.count.
    // `mine` may be its own place in `all`.
    Status all_gather(ConstBuffer mine, Buffer all, Stream stream = nullptr);
    // `mine` = this rank's share of the reduction of `all`: all.count = size() * mine.count. The
    // two may not overlap; `all` stays.
    Status reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op = ReduceOp::sum,
                          Stream stream = nullptr);
    // From one rank to another, which calls recv() with the same type and number; several between
    // two ranks arrive in order. A rank cannot send to itself.
    Status send(ConstBuffer values, std::int32_t to, Stream stream = nullptr);
    Status recv(Buffer values, std::int32_t from, Stream stream = nullptr);
    // Returns once every rank has called it; with a stream of GPU work, when the GPU has come past
    // everything that was enqueued on it before.
    Status barrier(Stream stream = nullptr);

    // Ends what is under way on this rank, also a call in which another thread waits: that returns
    // cancelled with `why`. The peers notice that this rank has left. May be called again.
    void abort(std::string why);
    // The first failure, also of operations on a GPU that were only enqueued. Nothing: all is well
    // as far as is known. Does not wait.
    std::optional<Error> async_error();

    // A peer whose connection has ended, as far as is known without asking: it was lost, or it is
    // done. Any thread.
    virtual std::optional<std::int32_t> lost_peer() const { return std::nullopt; }

    Status all_reduce_sum(std::span<float> values) { return all_reduce(buffer_of(values)); }
    Status broadcast(std::span<std::byte> bytes, std::int32_t root) {
        return broadcast(buffer_of(bytes), root);
    }

  protected:
    // For the implementations: keeps the first failure and returns it, whatever came later.
    Error keep(Error error);

  private:
    // The arguments are checked; there are values, and no failure is known.
    virtual Status do_all_reduce(Buffer values, ReduceOp op, Stream stream) = 0;
    virtual Status do_reduce(Buffer values, std::int32_t root, ReduceOp op, Stream stream) = 0;
    virtual Status do_broadcast(Buffer values, std::int32_t root, Stream stream) = 0;
    virtual Status do_all_gather(ConstBuffer mine, Buffer all, Stream stream) = 0;
    virtual Status do_reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op, Stream stream) = 0;
    virtual Status do_send(ConstBuffer values, std::int32_t to, Stream stream) = 0;
    virtual Status do_recv(Buffer values, std::int32_t from, Stream stream) = 0;
    virtual Status do_barrier(Stream stream) = 0;
    // Any thread, beside a call. The reason is kept already.
    virtual void do_abort() = 0;
    virtual std::optional<Error> do_async_error() { return std::nullopt; }

    template <class Call>
    Status run(const char* what, std::optional<Error> wrong, std::size_t count, Call&& call);
    std::optional<Error> check(ConstBuffer values, std::int32_t peer) const;
    std::optional<Error> check_share(ConstBuffer mine, ConstBuffer all) const;

    std::mutex mutex_;  // guards failure_
    std::optional<Error> failure_;
};

}  // namespace lockstep
