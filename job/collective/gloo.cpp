#include "job/collective/gloo.hpp"

#include "job/collective/alone.hpp"
#include "job/collective/call.hpp"
#include "job/collective/gloo_device.hpp"
#include "job/collective/gloo_exchange.hpp"
#include "job/collective/gloo_store.hpp"
#include "job/collective/gloo_watch.hpp"
#include "job/collective/reduction.hpp"
#include "job/collective/shared_sum.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Runs Gloo code, whose failures are exceptions. `what`: in front of the message, if any.
template <class Function>
Status guarded(std::string_view what, Function&& function) {
    try {
        std::forward<Function>(function)();
        return {};
    } catch (const GlooFailed& failed) {
        return fail(what.empty() ? failed.error() : failed.error().in(what));
    } catch (const std::exception& failed) {
        Error error{Errc::unavailable, failed.what()};
        // Gloo's words (0.0~git20220518): its IoException is thrown for a timeout, too.
        if (error.message.find("imed out") != std::string::npos) {
            error.code = Errc::timed_out;
        }
        return fail(what.empty() ? std::move(error) : std::move(error).in(what));
    }
}

// A call has another tag (CollectiveCall::tag).
constexpr std::uint32_t kAgreeTag = 0;
// Slots of our own operations beside those of Gloo's (gloo/types.h); 0x42 is gloo_watch.cpp's.
constexpr std::uint8_t kSendSlot = 0x40;
constexpr std::uint8_t kReduceScatterSlot = 0x41;
constexpr std::uint8_t kExchangeSlot = 0x43;
constexpr std::size_t kKnownCalls = 4096;

class GlooCommunicator final : public Communicator {
  public:
    GlooCommunicator(std::shared_ptr<WatchedGloo> context,
                     std::shared_ptr<gloo::transport::Device> device, GlooOptions options)
        : device_(std::move(device)),
          context_(std::move(context)),
          options_(std::move(options)),
          shares_memory_(options_.shared_memory) {}

    std::int32_t rank() const override { return context_->rank; }
    std::int32_t size() const override { return context_->size; }
    Device device() const override { return Device::cpu; }
    std::optional<std::int32_t> lost_peer() const override {
        for (std::int32_t other = 0; other < size(); ++other) {
            if (other != rank() && context_->is_lost(other)) {
                return other;
            }
        }
        return std::nullopt;
    }

  private:
    using Kind = CollectiveCall::Kind;

    Status do_all_reduce(Buffer values, ReduceOp op, Stream /*stream*/) override {
        return agreed(Kind::all_reduce, values, op, 0, [&](std::uint32_t tag) {
            const ReduceFunction combine = reduce_function(values.type, op);
            auto* data = static_cast<std::byte*>(values.data);
            if (std::exchange(shares_memory_, false)) {
                share_memory();
            }
            if (shared_) {
                const Status done = shared_->run(
                    {data, values.count, size_of(values.type)}, combine, tag,
                    options_.operation_timeout,
                    [this](std::int32_t other) { return context_->is_lost(other); },
                    [this](std::int32_t other) { return options_.name_of(other); });
                if (!done) {
                    throw GlooFailed{done.error()};
                }
            } else if (ExchangeAllReduce::is_for(size(), values.bytes())) {
                exchange_.run(*context_, {data, values.count, size_of(values.type)}, combine,
                              gloo::Slot::build(kExchangeSlot, tag));
            } else {
                gloo::AllreduceOptions options{context_};
                with_type(values, [&](auto* first) { options.setOutput(first, values.count); });
                options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
                options.setTag(tag);
                options.setReduceFunction(combine);
                gloo::allreduce(options);
            }
            if (op == ReduceOp::average) {
                divide(values.data, values.count, values.type, size());
            }
        });
    }

    Status do_reduce(Buffer values, std::int32_t root, ReduceOp op, Stream /*stream*/) override {
        return agreed(Kind::reduce, values, op, root, [&](std::uint32_t tag) {
            // The others' result is a place to work in.
            std::vector<std::byte> scratch(root == rank() ? 0 : values.bytes());
            gloo::ReduceOptions options{context_};
            with_type(values, [&](auto* data) {
                options.setInput(data, values.count);
                options.setOutput(
                    scratch.empty() ? data : reinterpret_cast<decltype(data)>(scratch.data()),
                    values.count);
            });
            options.setRoot(root);
            options.setTag(tag);
            options.setReduceFunction(reduce_function(values.type, op));
            gloo::reduce(options);
            if (op == ReduceOp::average && root == rank()) {
                divide(values.data, values.count, values.type, size());
            }
        });
    }

    Status do_broadcast(Buffer values, std::int32_t root, Stream /*stream*/) override {
        return agreed(Kind::broadcast, values, ReduceOp::sum, root, [&](std::uint32_t tag) {
            gloo::BroadcastOptions options{context_};
            options.setOutput(static_cast<char*>(values.data), values.bytes());
            options.setRoot(root);
            options.setTag(tag);
            gloo::broadcast(options);
        });
    }

    Status do_all_gather(ConstBuffer mine, Buffer all, Stream /*stream*/) override {
        return agreed(Kind::all_gather, mine, ReduceOp::sum, 0, [&](std::uint32_t tag) {
            auto* place =
                static_cast<char*>(all.data) + static_cast<std::size_t>(rank()) * mine.bytes();
            std::memmove(place, mine.data, mine.bytes());
            gather(static_cast<char*>(all.data), mine.bytes(), tag);
        });
    }

    // Around the ring: the share that ends here began at the rank to the right, and everybody that
    // it passes adds its own.
    Status do_reduce_scatter(ConstBuffer all, Buffer mine, ReduceOp op,
                             Stream /*stream*/) override {
        return agreed(Kind::reduce_scatter, mine, op, 0, [&](std::uint32_t tag) {
            const std::int32_t ranks = size();
            const auto share = [&](std::int32_t of) {
                return static_cast<const std::byte*>(all.data) +
                       static_cast<std::size_t>((of + 2 * ranks) % ranks) * mine.bytes();
            };
            const ReduceFunction add = reduce_function(mine.type, op);
            const auto slot = gloo::Slot::build(kReduceScatterSlot, tag);
            std::vector<std::byte> passing(share(rank() - 1), share(rank() - 1) + mine.bytes());
            auto out = context_->createUnboundBuffer(passing.data(), passing.size());
            auto in = context_->createUnboundBuffer(mine.data, mine.bytes());
            for (std::int32_t step = 0; step + 1 < ranks; ++step) {
                in->recv((rank() + ranks - 1) % ranks, slot);
                out->send((rank() + 1) % ranks, slot);
                in->waitRecv();
                out->waitSend();
                add(mine.data, mine.data, share(rank() - step - 2), mine.count);
                if (step + 2 < ranks) {
                    std::memcpy(passing.data(), mine.data, mine.bytes());
                }
            }
            if (op == ReduceOp::average) {
                divide(mine.data, mine.count, mine.type, ranks);
            }
        });
    }

    // Two ranks cannot ask all others: a send that is awaited with another size meets nobody, and
    // both are told that the other one was silent.
    Status do_send(ConstBuffer values, std::int32_t to, Stream /*stream*/) override {
        return guarded("", [&] {
            // Gloo's buffers are for both directions; a send only reads.
            auto buffer =
                context_->createUnboundBuffer(const_cast<void*>(values.data), values.bytes());
            buffer->send(to, pair_slot(values));
            buffer->waitSend();
        });
    }
    Status do_recv(Buffer values, std::int32_t from, Stream /*stream*/) override {
        return guarded("", [&] {
            auto buffer = context_->createUnboundBuffer(values.data, values.bytes());
            buffer->recv(from, pair_slot(values));
            buffer->waitRecv();
        });
    }

    Status do_barrier(Stream /*stream*/) override {
        return agreed(Kind::barrier, {}, ReduceOp::sum, 0, [&](std::uint32_t tag) {
            gloo::BarrierOptions options{context_};
            options.setTag(tag);
            gloo::barrier(options);
        });
    }

    // Gloo's one way to end the operations of other threads: a wait that is too long closes every
    // connection of the context and tells all who wait.
    void do_abort() override {
        {
            const std::lock_guard lock{abort_mutex_};
            aborted_ = true;
            if (shared_) {
                shared_->abort();
            }
        }
        std::byte nothing{};
        static_cast<void>(guarded("", [&] {
            auto buffer = context_->createUnboundBuffer(&nothing, sizeof nothing);
            buffer->waitRecv(std::chrono::milliseconds{1});
        }));
    }

    // At the first all-reduce, which every rank has agreed to: most groups of two or of a node
    // never make one. Throws what Gloo throws.
    void share_memory() {
        auto made = SharedSum::meet(rank(), size(), [&](std::span<const std::byte> mine) {
            std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
            std::copy(mine.begin(), mine.end(),
                      all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank());
            gather(reinterpret_cast<char*>(all.data()), mine.size(), kAgreeTag);
            return all;
        });
        const std::lock_guard lock{abort_mutex_};
        shared_ = std::move(made);
        if (shared_ && aborted_) {
            shared_->abort();
        }
    }

    static std::uint64_t pair_slot(ConstBuffer values) {
        CollectiveCall call;
        call.kind = static_cast<std::uint64_t>(Kind::send);
        call.type = static_cast<std::uint64_t>(values.type);
        call.count = values.count;
        return gloo::Slot::build(kSendSlot, call.tag());
    }

    // Gloo wants the size of a value, by its type.
    template <class Function>
    static void with_type(Buffer values, Function&& function) {
        switch (size_of(values.type)) {
            case 1:
                return function(static_cast<std::uint8_t*>(values.data));
            case 2:
                return function(static_cast<std::uint16_t*>(values.data));
            case 4:
                return function(static_cast<std::uint32_t*>(values.data));
            default:
                return function(static_cast<std::uint64_t*>(values.data));
        }
    }

    // `all` has this rank's part in its place already.
    void gather(char* all, std::size_t bytes, std::uint32_t tag) {
        gloo::AllgatherOptions options{context_};
        options.setOutput(all, bytes * static_cast<std::size_t>(size()));
        options.setTag(tag);
        gloo::allgather(options);
    }

    // The first time that this rank makes such a call, it asks what call the others make: a
    // training that differs from rank to rank is found at its first step, by name, and the steps
    // after that do not pay for it.
    template <class Function>
    Status agreed(Kind kind, ConstBuffer values, ReduceOp op, std::int32_t root,
                  Function&& function) {
        const CollectiveCall call{
            static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(values.type),
            static_cast<std::uint64_t>(op), values.count, static_cast<std::uint64_t>(root)};
        if (!known_.contains(call)) {
            std::vector<CollectiveCall> calls(static_cast<std::size_t>(size()));
            calls[static_cast<std::size_t>(rank())] = call;
            const Status asked = guarded("", [&] {
                gather(reinterpret_cast<char*>(calls.data()), sizeof(CollectiveCall), kAgreeTag);
            });
            if (!asked) {
                return asked;
            }
            for (std::size_t other = 0; other < calls.size(); ++other) {
                if (calls[other] != call) {
                    return fail(
                        Errc::conflict,
                        "rank " + std::to_string(options_.name_of(rank())) + " calls " +
                            call.text() + ", rank " +
                            std::to_string(options_.name_of(static_cast<std::int32_t>(other))) +
                            " " + calls[other].text());
                }
            }
            if (known_.size() >= kKnownCalls) {
                known_.clear();  // on every rank at the same call
            }
            known_.insert(call);
        }
        return guarded("", [&] { function(call.tag()); });
    }

    // The context's connections end before the device whose thread serves them.
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<WatchedGloo> context_;
    GlooOptions options_;
    bool shares_memory_;                 // if it can; not asked yet
    std::unique_ptr<SharedSum> shared_;  // none: the ranks are not on one machine
    std::mutex abort_mutex_;  // of the two that abort() shares with the operations' thread
    bool aborted_ = false;
    std::set<CollectiveCall> known_;  // that all ranks have made alike
    ExchangeAllReduce exchange_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_gloo(const GlooOptions& options, KeyStore& store) {
    if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
        return fail(Errc::invalid, "gloo: rank " + std::to_string(options.rank) + " of " +
                                       std::to_string(options.size));
    }
    if (options.size == 1) {
        return make_alone();
    }
    std::unique_ptr<Communicator> out;
    const Status made = guarded("gloo: connect", [&] {
        std::shared_ptr<gloo::transport::Device> device = make_gloo_device(options.address);
        auto context = std::make_shared<WatchedGloo>(options.rank, options.size);
        context->setTimeout(options.connect_timeout);
        GlooStore adapter{store, options};
        context->connectFullMesh(adapter, device);
        context->setTimeout(options.operation_timeout);
        context->watch(options.operation_timeout,
                       [options](std::int32_t rank) { return options.name_of(rank); });
        out = std::make_unique<GlooCommunicator>(std::move(context), std::move(device), options);
    });
    LOCKSTEP_TRY(made);
    return out;
}

}  // namespace lockstep
