#include "daemon/control/base/rank_order.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {

bool RanksQuery::sort_by(std::string_view text) {
    const bool down = text.starts_with('-');
    text.remove_prefix(down ? 1 : 0);
    const auto found = std::find_if(kRankKeys.begin(), kRankKeys.end(),
                                    [text](const RankKey& one) { return one.name == text; });
    if (found == kRankKeys.end()) {
        return false;
    }
    key = *found;
    descending = down;
    return true;
}

std::vector<std::int32_t> ranks_in_order(const std::vector<std::optional<double>>& values,
                                         const RanksQuery& query) {
    const std::size_t begin = std::min(query.offset, values.size());
    const std::size_t end = begin + std::min(query.limit, values.size() - begin);
    std::vector<std::int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](std::int32_t a, std::int32_t b) {
        const auto& left = values[static_cast<std::size_t>(a)];
        const auto& right = values[static_cast<std::size_t>(b)];
        if (!left || !right) {
            return left.has_value() != right.has_value() ? left.has_value() : a < b;
        }
        const bool left_nan = std::isnan(*left);
        const bool right_nan = std::isnan(*right);
        if (left_nan || right_nan) {
            return left_nan != right_nan ? left_nan == query.descending : a < b;
        }
        if (*left != *right) {
            return query.descending ? *left > *right : *left < *right;
        }
        return a < b;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(end), order.end(),
                      before);
    return {order.begin() + static_cast<std::ptrdiff_t>(begin),
            order.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace lockstep
