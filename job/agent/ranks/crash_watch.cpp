#include "job/agent/ranks/crash_watch.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kCrashWords{"Traceback (most recent call last)",
                                                      "terminate called", "Fatal Python error"};
constexpr std::size_t kLongest = 33;
constexpr UnixMillis kOneCrash = 1'000;

bool speaks_of_a_crash(std::string_view text) {
    return std::any_of(kCrashWords.begin(), kCrashWords.end(), [&](std::string_view word) {
        return text.find(word) != std::string_view::npos;
    });
}

}  // namespace

void CrashWatch::feed(std::string_view bytes, UnixMillis now) {
    const std::string joint = end_ + std::string{bytes.substr(0, kLongest - 1)};
    if (speaks_of_a_crash(joint) || speaks_of_a_crash(bytes)) {
        at_ = at_ == 0 || now - newest_ > kOneCrash ? now : at_;
        newest_ = now;
    }
    end_ += bytes.substr(bytes.size() - std::min(bytes.size(), kLongest - 1));
    end_.erase(0, end_.size() - std::min(end_.size(), kLongest - 1));
}

}  // namespace lockstep
