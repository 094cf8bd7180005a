// What a pipeline's ranks give to a checkpoint and take from one: a part of each stage of the first
// chain, or the whole at rank 0.
#include "job/trainer/strategies/pipeline.hpp"

#include <numeric>
#include <span>

namespace lockstep {

// The first chain's stages write a part each.
Status Pipeline::snapshot(const PartSet&, Snapshot& out) {
    out.index = place_.chain == 0 ? place_.stage : -1;
    out.count = place_.stages;
    if (out.index < 0) {
        return {};
    }
    const auto stage = static_cast<std::size_t>(place_.stage);
    const std::size_t blocks = Optimizer::moments(config_.optimizer);
    const auto sum = [](const std::vector<std::size_t>& sizes, std::size_t end) {
        return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(end),
                               std::size_t{0});
    };
    if (const Status here = held_.fetch(); !here) {
        return here;
    }
    held_.show(out.part, whole_.floats - sum(parameter_floats_, stage + 1),
               sum(buffer_floats_, stage), whole_.floats);
    out.sizes = {whole_.floats, sum(buffer_floats_, buffer_floats_.size()), blocks * whole_.floats};
    if (out.index == 0 && out.layout.empty()) {
        out.layout = whole_.json();
    }
    return {};
}

// Calls part(stage, floats of the whole state) for every piece of every stage, in one order. The
// flat buffer is in reverse order of use, so the last stage's parameters come first.
template <class Part>
Status Pipeline::move_parts(Checkpoint& state, Part&& part) {
    const std::size_t blocks = Optimizer::moments(config_.optimizer);
    if (all_.rank() == 0) {
        state.parameters.resize(whole_.floats);
        state.optimizer.resize(blocks * whole_.floats);
        state.buffers.resize(
            std::accumulate(buffer_floats_.begin(), buffer_floats_.end(), std::size_t{0}));
        state.layout = whole_.json();
    }
    std::size_t offset = whole_.floats;
    std::size_t buffer = 0;
    for (std::int32_t stage = 0; stage < place_.stages; ++stage) {
        const std::size_t floats = parameter_floats_[static_cast<std::size_t>(stage)];
        const std::size_t averages = buffer_floats_[static_cast<std::size_t>(stage)];
        offset -= floats;
        const auto slice = [&](std::vector<float>& whole, std::size_t at, std::size_t count) {
            return all_.rank() == 0 ? std::span{whole}.subspan(at, count) : std::span<float>{};
        };
        Status done = part(stage, slice(state.parameters, offset, floats), held_.parameters());
        for (std::size_t block = 0; done && block < blocks; ++block) {
            const std::span<float> mine = place_.stage == stage
                                              ? held_.moments().subspan(block * floats, floats)
                                              : std::span<float>{};
            done =
                part(stage, slice(state.optimizer, block * whole_.floats + offset, floats), mine);
        }
        if (done && averages > 0) {
            done = part(stage, slice(state.buffers, buffer, averages), held_.buffers());
        }
        buffer += averages;
        if (!done) {
            return done;
        }
    }
    return {};
}

// From the first chain's stages to rank 0.
Status Pipeline::collect(Checkpoint& state) {
    if (const Status here = held_.fetch(); !here) {
        return here;
    }
    return move_parts(
        state, [&](std::int32_t stage, std::span<float> whole, std::span<float> mine) -> Status {
            if (all_.rank() == stage) {
                if (stage != 0) {
                    return all_.send(buffer_of(mine), 0);
                }
                std::copy(mine.begin(), mine.end(), whole.begin());
                return {};
            }
            return all_.rank() == 0 ? all_.recv(buffer_of(whole), stage) : Status{};
        });
}

// The opposite, and from the first chain to the others.
Status Pipeline::distribute(Checkpoint& state) {
    const Status moved = move_parts(
        state, [&](std::int32_t stage, std::span<float> whole, std::span<float> mine) -> Status {
            if (all_.rank() == 0 && stage != 0) {
                return all_.send(buffer_of(whole), stage);
            }
            if (all_.rank() == stage) {
                if (stage != 0) {
                    return all_.recv(buffer_of(mine), 0);
                }
                std::copy(whole.begin(), whole.end(), mine.begin());
            }
            return {};
        });
    if (!moved) {
        return moved;
    }
    for (const std::span<float> part : {held_.parameters(), held_.moments(), held_.buffers()}) {
        if (const Status sent = groups_.peers->broadcast(std::as_writable_bytes(part), 0); !sent) {
            return sent;
        }
    }
    held_.store(state.step - state.loss_scale.skipped);
    return {};
}
}  // namespace lockstep
