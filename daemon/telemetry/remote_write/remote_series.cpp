#include "daemon/telemetry/remote_write/remote_series.hpp"

#include "daemon/telemetry/remote_write/remote_message.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::telemetry {
namespace {

double value_of(std::string_view text) {
    if (text == "+Inf") {
        return std::numeric_limits<double>::infinity();
    }
    return to_double(text).value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

void RemoteSeries::read(std::string text, const Take& take) {
    std::unordered_set<std::string_view> now;
    now.reserve(known_.size());
    const auto before = std::exchange(text_, std::make_unique<const std::string>(std::move(text)));
    std::string_view rest = *text_;
    while (!rest.empty()) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        const auto blank = line.rfind(' ');
        if (line.starts_with('#') || blank == std::string_view::npos) {
            continue;
        }
        const std::string_view series = line.substr(0, blank);
        now.insert(series);
        take(series, value_of(line.substr(blank + 1)));
    }
    for (const std::string_view series : known_) {
        if (!now.contains(series)) {
            take(series, stale_marker());
        }
    }
    known_ = std::move(now);
}

}  // namespace lockstep::telemetry
