#include "job/collective/gloo_exchange.hpp"

#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <bit>
#include <memory>

namespace lockstep {
namespace {

// Beyond these the ring's smaller messages are faster; measured on two cores, by
// tests/bench/run trainer.
constexpr std::size_t kPairBytes = 512U << 10U;
constexpr std::size_t kGroupBytes = 64U << 10U;
// A message goes in pieces, so that one is reduced while the next is on its way.
constexpr std::size_t kPieceBytes = 128U << 10U;

// The two sides of one call: what is sent and what comes.
class Exchange {
  public:
    Exchange(gloo::Context& context, ExchangeAllReduce::Values values, std::byte* received,
             ReduceFunction reduce, std::uint64_t slot)
        : values_(values),
          received_(received),
          reduce_(reduce),
          slot_(slot),
          mine_(context.createUnboundBuffer(values.data, bytes())),
          theirs_(context.createUnboundBuffer(received, bytes())) {}

    void send(std::int32_t to) {
        mine_->send(to, slot_);
        mine_->waitSend();
    }
    void receive(std::int32_t from) {
        mine_->recv(from, slot_);
        mine_->waitRecv();
    }
    // `both`: the peer does the same. `first`: the peer's values are those of the lower ranks.
    void combine(std::int32_t peer, bool both, bool first) {
        const std::size_t step = kPieceBytes / values_.size;
        for (std::size_t at = 0; at < values_.count; at += step) {
            theirs_->recv(peer, slot_, at * values_.size, size_at(at, step));
        }
        for (std::size_t at = 0; both && at < values_.count; at += step) {
            mine_->send(peer, slot_, at * values_.size, size_at(at, step));
        }
        for (std::size_t at = 0; at < values_.count; at += step) {
            theirs_->waitRecv();
            if (both) {
                mine_->waitSend();  // before its values change
            }
            std::byte* own = values_.data + at * values_.size;
            const std::byte* other = received_ + at * values_.size;
            reduce_(own, first ? other : own, first ? own : other,
                    size_at(at, step) / values_.size);
        }
    }

  private:
    std::size_t bytes() const { return values_.count * values_.size; }
    std::size_t size_at(std::size_t at, std::size_t step) const {
        return std::min(step, values_.count - at) * values_.size;
    }

    ExchangeAllReduce::Values values_;
    std::byte* received_;
    ReduceFunction reduce_;
    std::uint64_t slot_;
    std::unique_ptr<gloo::transport::UnboundBuffer> mine_;
    std::unique_ptr<gloo::transport::UnboundBuffer> theirs_;
};

}  // namespace

bool ExchangeAllReduce::is_for(std::int32_t ranks, std::size_t bytes) {
    return bytes <= (ranks == 2 ? kPairBytes : kGroupBytes);
}

// Of n ranks, n - 2^k of the first give their values to the rank before them and get the result
// back. Those that are left exchange with whom one bit of their number tells apart.
void ExchangeAllReduce::run(gloo::Context& context, Values values, ReduceFunction reduce,
                            std::uint64_t slot) {
    received_.resize(std::max(received_.size(), values.count * values.size));
    Exchange exchange{context, values, received_.data(), reduce, slot};
    const auto active =
        static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(context.size)));
    const std::int32_t extra = context.size - active;
    const std::int32_t rank = context.rank;
    const bool paired = rank < 2 * extra;
    if (paired && rank % 2 == 1) {
        exchange.send(rank - 1);
        exchange.receive(rank - 1);
        return;
    }
    if (paired) {
        exchange.combine(rank + 1, /*both=*/false, /*first=*/false);
    }
    const std::int32_t number = paired ? rank / 2 : rank - extra;
    for (std::int32_t bit = 1; bit < active; bit *= 2) {
        const std::int32_t other = number ^ bit;
        exchange.combine(other < extra ? 2 * other : other + extra, /*both=*/true,
                         /*first=*/other < number);
    }
    if (paired) {
        exchange.send(rank + 1);
    }
}

}  // namespace lockstep
