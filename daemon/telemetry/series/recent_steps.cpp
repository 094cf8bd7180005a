#include "daemon/telemetry/series/recent_steps.hpp"

#include "daemon/telemetry/series/rank_series.hpp"
#include "job/base/limits.hpp"

#include <ranges>

namespace lockstep::telemetry {

void RecentSteps::add(std::size_t rank, std::int64_t step, double loss, double step_seconds) {
    if (step < 0 || (is_absent(loss) && is_absent(step_seconds))) {
        return;
    }
    const std::size_t at = next_[rank];
    if (at == slots_.size()) {
        const std::size_t ranks = next_.size();
        slots_.push_back({std::vector<std::int64_t>(ranks), std::vector<double>(ranks),
                          std::vector<double>(ranks)});
    }
    slots_[at].step[rank] = step;
    slots_[at].loss[rank] = loss;
    slots_[at].step_seconds[rank] = step_seconds;
    next_[rank] = static_cast<std::uint8_t>((at + 1) % limits::kRecentSteps);
    if (count_[rank] < limits::kRecentSteps) {
        ++count_[rank];
    }
}

void RecentSteps::clear(std::size_t rank) {
    next_[rank] = 0;
    count_[rank] = 0;
}

double RecentSteps::at(std::size_t rank, std::int64_t step, Field field) const {
    std::size_t slot = next_[rank];
    for (std::size_t left = count_[rank]; left > 0; --left) {
        slot = slot == 0 ? limits::kRecentSteps - 1 : slot - 1;
        const double value = (slots_[slot].*field)[rank];
        if (slots_[slot].step[rank] <= step && !is_absent(value)) {
            return value;
        }
    }
    return kAbsent;
}

template <class Ranks>
std::vector<double> RecentSteps::all_at(const Ranks& ranks, std::int64_t step, Field field) const {
    std::vector<double> out;
    out.reserve(ranks.size());
    for (const auto rank : ranks) {
        if (const double value = at(rank, step, field); !is_absent(value)) {
            out.push_back(value);
        }
    }
    return out;
}

std::optional<double> RecentSteps::loss_at(std::size_t rank, std::int64_t step) const {
    const double value = at(rank, step, &Slot::loss);
    return is_absent(value) ? std::nullopt : std::optional{value};
}

std::optional<double> RecentSteps::step_seconds_at(std::size_t rank, std::int64_t step) const {
    const double value = at(rank, step, &Slot::step_seconds);
    return is_absent(value) ? std::nullopt : std::optional{value};
}

std::vector<double> RecentSteps::losses_at(std::span<const std::uint32_t> ranks,
                                           std::int64_t step) const {
    return all_at(ranks, step, &Slot::loss);
}

std::vector<double> RecentSteps::losses_at(std::int64_t step) const {
    return all_at(std::views::iota(std::size_t{0}, next_.size()), step, &Slot::loss);
}

std::vector<double> RecentSteps::step_seconds_at(std::span<const std::uint32_t> ranks,
                                                 std::int64_t step) const {
    return all_at(ranks, step, &Slot::step_seconds);
}

std::size_t RecentSteps::bytes() const {
    const std::size_t of_rank = sizeof(std::int64_t) + 2 * sizeof(double);
    return next_.capacity() + count_.capacity() + slots_.size() * next_.size() * of_rank;
}

}  // namespace lockstep::telemetry
