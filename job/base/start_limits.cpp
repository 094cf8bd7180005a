#include "job/base/start_limits.hpp"

#include "job/base/text.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

StartLimits& remembered_start_limits() {
    static StartLimits limits;
    return limits;
}

}  // namespace

const StartLimits& start_limits() {
    return remembered_start_limits();
}

void raise_open_files() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        StartLimits& before = remembered_start_limits();
        if (before.open_files == 0) {
            before.open_files = limit.rlim_cur;
        }
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void narrow_umask() {
    const mode_t own = ::umask(077);
    StartLimits& before = remembered_start_limits();
    if (before.umask < 0) {
        before.umask = static_cast<int>(own);
    }
}

void assume_start_limits(const StartLimits& before) {
    remembered_start_limits() = before;
}

void give_back_limits(const StartLimits& before) {
    rlimit limit{};
    if (before.open_files > 0 && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = before.open_files < limit.rlim_max ? before.open_files : limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (before.umask >= 0) {
        ::umask(static_cast<mode_t>(before.umask));
    }
}

std::string to_text(const StartLimits& limits) {
    return std::to_string(limits.open_files) + ":" + std::to_string(limits.umask);
}

StartLimits start_limits_from(const std::string& text) {
    const auto colon = text.find(':');
    if (colon == std::string::npos) {
        return {};
    }
    const auto files = to_int(text.substr(0, colon));
    const auto mask = to_int(text.substr(colon + 1));
    if (!files || !mask || *files < 0 || *mask < -1 || *mask > 0777) {
        return {};
    }
    return {static_cast<std::uint64_t>(*files), static_cast<int>(*mask)};
}

}  // namespace lockstep
