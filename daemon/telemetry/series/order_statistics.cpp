#include "daemon/telemetry/series/order_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr std::size_t kFew = 512;  // below, std::nth_element is as quick

}  // namespace

double median_of(std::vector<float>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    const double upper = static_cast<double>(*middle);
    return values.size() % 2 == 1
               ? upper
               : (static_cast<double>(*std::max_element(values.begin(), middle)) + upper) / 2;
}

OrderStatistics::OrderStatistics(std::vector<double> values)
    : values_(std::move(values)), low_(values_.front()), high_(values_.front()) {
    for (const double value : values_) {
        low_ = value < low_ ? value : low_;
        high_ = value > high_ ? value : high_;
    }
    // Not if they are equal, or too far apart to be divided.
    const double scale = static_cast<double>(kParts) / (high_ - low_);
    if (values_.size() <= kFew || !std::isfinite(scale) || scale <= 0) {
        return;
    }
    constexpr auto kLast = static_cast<std::int32_t>(kParts) - 1;
    parts_.resize(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) {
        const double at = (values_[i] - low_) * scale;
        if (!(at >= 0)) {  // not a number, against the contract: nothing may be written for it
            parts_.clear();
            return;
        }
        const auto part = std::min(static_cast<std::int32_t>(at), kLast);
        parts_[i] = static_cast<std::uint16_t>(part);
        ++counts_[static_cast<std::size_t>(part)];
    }
    if (*std::max_element(counts_.begin(), counts_.end()) > values_.size() / 2) {
        parts_.clear();  // a few far ones and the crowd: no part would be much smaller
    }
}

OrderStatistics::Place OrderStatistics::find(std::size_t place) {
    const auto nth = [](std::vector<double>& in, std::size_t n) {
        const auto at = in.begin() + static_cast<std::ptrdiff_t>(n);
        std::nth_element(in.begin(), at, in.end());
        return Place{*at, n == 0 ? std::nullopt : std::optional{*std::max_element(in.begin(), at)}};
    };
    if (parts_.empty()) {
        return nth(values_, place);
    }
    std::size_t part = 0;
    while (place >= counts_[part]) {
        place -= counts_[part++];
    }
    std::vector<double> inner;
    inner.reserve(counts_[part]);
    for (std::size_t i = 0; i < values_.size(); ++i) {
        if (parts_[i] == part) {
            inner.push_back(values_[i]);
        }
    }
    return inner.size() > kFew ? OrderStatistics{std::move(inner)}.find(place) : nth(inner, place);
}

double OrderStatistics::median() {
    const std::size_t middle = values_.size() / 2;
    const Place upper = find(middle);
    if (values_.size() % 2 == 1) {
        return upper.value;
    }
    double lower = upper.before.value_or(-std::numeric_limits<double>::infinity());
    if (!upper.before) {
        for (const double value : values_) {
            lower = value < upper.value && value > lower ? value : lower;
        }
    }
    return (lower + upper.value) / 2;
}

}  // namespace lockstep::telemetry
