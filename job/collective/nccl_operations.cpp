// The operations of NcclRanks: what goes to NCCL, and what is noted of it for the watch.
#include "job/collective/nccl_ranks.hpp"

#include <utility>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// NCCL hands each operation of a non-blocking communicator to a thread of its own, which mostly has
// enqueued it within this time: a sleep, with the timer's slack, would take longer than that.
constexpr auto kEnqueueSpin = 200us;
constexpr auto kEnqueuePoll = 50us;  // of one that takes longer
constexpr auto kBarrierPoll = 20us;
constexpr auto kVerdictPoll = 50ms;

nccl::Type nccl_type(Dtype type) {
    switch (type) {
        case Dtype::u8:
            return nccl::kU8;
        case Dtype::i32:
            return nccl::kI32;
        case Dtype::i64:
            return nccl::kI64;
        case Dtype::f16:
            return nccl::kF16;
        case Dtype::bf16:
            return nccl::kBf16;
        case Dtype::f32:
            return nccl::kF32;
        case Dtype::f64:
            return nccl::kF64;
    }
    return nccl::kU8;
}

nccl::Op nccl_op(ReduceOp op) {
    switch (op) {
        case ReduceOp::sum:
            return nccl::kSum;
        case ReduceOp::product:
            return nccl::kProd;
        case ReduceOp::min:
            return nccl::kMin;
        case ReduceOp::max:
            return nccl::kMax;
        case ReduceOp::average:
            return nccl::kAvg;
    }
    return nccl::kSum;
}

}  // namespace

template <class Function>
Status NcclRanks::enqueue(Kind kind, ConstBuffer values, ReduceOp op, std::int32_t root,
                          Stream stream, Function&& function) {
    node_.use_gpu();
    const auto& api = node_.library.api;
    const CollectiveCall call{
        static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(values.type),
        static_cast<std::uint64_t>(op), values.count, static_cast<std::uint64_t>(root)};
    std::unique_lock lock{comm_mutex_};
    // By an abort, which has said why, also where it comes between two questions below.
    const auto ended = [this] {
        return fail(async_error().value_or(Error{Errc::cancelled, "the communicator has ended"}));
    };
    if (comm_ == nullptr) {
        return ended();
    }
    nccl::Result state = std::forward<Function>(function)(api);
    count(call);  // the others are compared by it while this one waits for them
    // Every operation is in progress at first; the first of a kind makes connections, which takes
    // longer, and as long as it likes where a rank does not call it.
    beginning_ = Entry{nullptr, call, {}};
    const auto leave = [this, &lock](void* /*nothing*/) {
        if (!lock.owns_lock()) {
            lock.lock();
        }
        beginning_.reset();
    };
    const std::unique_ptr<void, decltype(leave)> at_the_end{this, leave};
    auto next_question = Clock::now();
    const auto sleeps_from = next_question + kEnqueueSpin;
    while (state == nccl::kInProgress) {
        lock.unlock();
        if (Clock::now() < sleeps_from) {
            std::this_thread::yield();
        } else {
            if (node_.gives_up(next_question)) {
                return fail(Errc::cancelled, "an operation was given up before it began");
            }
            if (const auto broken = async_error()) {
                return fail(*broken);
            }
            std::this_thread::sleep_for(kEnqueuePoll);
        }
        lock.lock();
        if (comm_ == nullptr) {
            return ended();
        }
        api.comm_get_async_error(comm_, &state);
    }
    if (state != nccl::kSuccess) {
        return fail(Errc::unavailable, node_.library.error(state, comm_));
    }
    note(call, stream);
    return {};
}

// With comm_mutex_.
void NcclRanks::count(const CollectiveCall& call) {
    if (static_cast<Kind>(call.kind) != Kind::send) {
        ++collectives_;
        last_ = call;
    }
}

// With comm_mutex_. An event behind the operation says when the GPU is done with it.
void NcclRanks::note(const CollectiveCall& call, Stream stream) {
    ++called_;
    const auto& api = node_.driver.api;
    int capturing = 0;
    if (api.stream_is_capturing(stream, &capturing) != cuda::kSuccess || capturing != 0) {
        ++done_;  // part of a graph: when it runs is not known here
        return;
    }
    Entry entry{nullptr, call};
    if (!spare_events_.empty()) {
        entry.event = spare_events_.back();
        spare_events_.pop_back();
    } else if (api.event_create(&entry.event, cuda::kDisableTiming) != cuda::kSuccess) {
        ++done_;
        return;
    }
    api.event_record(entry.event, stream);
    under_way_.push_back(entry);
}

Status NcclRanks::do_all_reduce(Buffer values, ReduceOp op, Stream stream) {
    return enqueue(Kind::all_reduce, values, op, 0, stream, [&](const nccl::Api& api) {
        return api.all_reduce(values.data, values.data, values.count, nccl_type(values.type),
                              nccl_op(op), comm_, stream);
    });
}

Status NcclRanks::do_reduce(Buffer values, std::int32_t root, ReduceOp op, Stream stream) {
    return enqueue(Kind::reduce, values, op, root, stream, [&](const nccl::Api& api) {
        // NCCL writes to what it receives into on the root only.
        return api.reduce(values.data, values.data, values.count, nccl_type(values.type),
                          nccl_op(op), root, comm_, stream);
    });
}

Status NcclRanks::do_broadcast(Buffer values, std::int32_t root, Stream stream) {
    return enqueue(Kind::broadcast, values, {}, root, stream, [&](const nccl::Api& api) {
        return api.broadcast(values.data, values.data, values.count, nccl_type(values.type), root,
                             comm_, stream);
    });
}

Status NcclRanks::do_all_gather(ConstBuffer mine, Buffer all, Stream stream) {
    return enqueue(Kind::all_gather, mine, {}, 0, stream, [&](const nccl::Api& api) {
        return api.all_gather(mine.data, all.data, mine.count, nccl_type(mine.type), comm_, stream);
    });
}

Status NcclRanks::do_reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op, Stream stream) {
    return enqueue(Kind::reduce_scatter, mine, op, 0, stream, [&](const nccl::Api& api) {
        return api.reduce_scatter(all.data, mine.data, mine.count, nccl_type(mine.type),
                                  nccl_op(op), comm_, stream);
    });
}

Status NcclRanks::do_send(ConstBuffer values, std::int32_t to, Stream stream) {
    return enqueue(Kind::send, values, {}, to, stream, [&](const nccl::Api& api) {
        return api.send(values.data, values.count, nccl_type(values.type), to, comm_, stream);
    });
}

Status NcclRanks::do_recv(Buffer values, std::int32_t from, Stream stream) {
    return enqueue(Kind::send, values, {}, from, stream, [&](const nccl::Api& api) {
        return api.recv(values.data, values.count, nccl_type(values.type), from, comm_, stream);
    });
}

Status NcclRanks::do_barrier(Stream stream) {
    // A number of the driver's, a pointer to NCCL.
    const Buffer one{reinterpret_cast<void*>(scratch_), 1, Dtype::u8, Device::cuda};
    const Status sent =
        enqueue(Kind::barrier, one, ReduceOp::max, 0, stream, [&](const nccl::Api& api) {
            return api.all_reduce(one.data, one.data, 1, nccl::kU8, nccl::kMax, comm_, stream);
        });
    if (!sent) {
        return sent;
    }
    std::int64_t mine = 0;
    {
        const std::lock_guard lock{comm_mutex_};
        mine = called_;
    }
    for (;;) {
        if (const auto broken = async_error()) {
            return fail(*broken);
        }
        if (const auto trouble = look()) {              // also counts what is done
            std::this_thread::sleep_for(kVerdictPoll);  // the watch will say who
            continue;
        }
        {
            const std::lock_guard lock{comm_mutex_};
            if (done_ >= mine) {
                return {};
            }
        }
        std::this_thread::sleep_for(kBarrierPoll);
    }
}

}  // namespace lockstep
