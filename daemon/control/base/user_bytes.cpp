#include "daemon/control/base/user_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace lockstep {
namespace {

// As the setting has them, 10^9 bytes; smaller amounts so that they are not "0.0 GB".
std::string in_gb(std::int64_t bytes) {
    std::array<char, 40> text{};
    const double gb = static_cast<double>(bytes) / 1e9;
    std::snprintf(text.data(), text.size(), gb < 0.1 ? "%.3g GB" : "%.1f GB", gb);
    return text.data();
}

}  // namespace

void UserBytes::add(const std::string& job, const std::string& user, std::int64_t specification) {
    if (jobs_.try_emplace(job, OfJob{user, specification, 0}).second) {
        users_[user] += specification;
    }
}

void UserBytes::measured(const std::string& job, const Folder& folder) {
    if (const auto found = jobs_.find(job); found != jobs_.end()) {
        const std::int64_t before = found->second.folder;
        found->second.folder = folder.whole ? folder.bytes : std::max(folder.bytes, before);
        users_[found->second.user] += found->second.folder - before;
    }
}

void UserBytes::removed(const std::string& job) {
    if (const auto found = jobs_.find(job); found != jobs_.end()) {
        users_[found->second.user] -= found->second.specification + found->second.folder;
        jobs_.erase(found);
    }
}

std::int64_t UserBytes::of(const std::string& user) const {
    const auto found = users_.find(user);
    return found == users_.end() ? 0 : found->second;
}

std::string UserBytes::next(const std::string& job) const {
    const auto found = jobs_.upper_bound(job);
    return found == jobs_.end() ? std::string{} : found->first;
}

Status UserBytes::check(const std::string& user, std::int64_t bound) const {
    const std::int64_t has = of(user);
    if (bound <= 0 || has < bound) {
        return {};
    }
    return fail(Errc::exhausted, "limit: a user's jobs may take " + in_gb(bound) + " on disk; " +
                                     user + " has " + in_gb(has) +
                                     ". lockstep du says which jobs take most, lockstep rm removes "
                                     "those that are over");
}

}  // namespace lockstep
