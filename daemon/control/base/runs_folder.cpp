#include "daemon/control/base/runs_folder.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <utility>

namespace lockstep {

Status can_write_into(const std::filesystem::path& folder) {
    const auto failed = [&](int number) {
        return fail(errno_error("write into " + folder.string(), number));
    };
    // Without a name where the file system can do that: nothing is left by a lockstepd that dies.
    UniqueFd file{::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)};
    const std::filesystem::path named = folder / ".writable";
    const bool has_name = !file && (errno == EOPNOTSUPP || errno == EISDIR);
    if (has_name) {
        file = UniqueFd{
            ::open(named.c_str(), O_CREAT | O_TRUNC | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600)};
    }
    if (!file) {
        return failed(errno);
    }
    // Some file systems find out that they are full at the first byte, or at the end.
    constexpr std::array<char, 512> kBytes{};
    int number = ::write(file.get(), kBytes.data(), kBytes.size()) < 0 ? errno : 0;
    if (::close(file.release()) != 0 && number == 0) {
        number = errno;
    }
    if (has_name) {
        ::unlink(named.c_str());
    }
    return number == 0 ? Status{} : failed(number);
}

Task<void> RunsFolder::watch(Periods periods) {
    while (!ending_) {
        doubted_ = false;
        const std::function<Status()> look = [folder = folder_] { return can_write_into(folder); };
        const auto until = std::chrono::steady_clock::now() + limits::kDiskPatience;
        const std::optional<Status> found = co_await asking_.run<Status>(look, until);
        if (ending_) {
            co_return;
        }
        note(found ? *found
                   : fail(Errc::timed_out,
                          "write into " + folder_.string() + ": the file system does not answer"));
        if (!doubted_) {
            co_await sleep_on(timer_, problem_.empty() ? periods.well : periods.unwell);
        }
    }
}

void RunsFolder::note(const Status& found) {
    std::string now = found ? "" : found.error().message;
    if (now == problem_) {
        return;
    }
    problem_ = std::move(now);
    if (problem_.empty()) {
        log::info("files can be made in the runs directory again", {{"folder", folder_.string()}});
    } else {
        log::error("no files can be made in the runs directory: no job begins",
                   {{"what", problem_}});
    }
}

void RunsFolder::doubt() {
    if (problem_.empty()) {
        doubted_ = true;
        timer_.cancel();
    }
}

void RunsFolder::halt() {
    ending_ = true;
    timer_.cancel();
    asking_.let_go();
}

}  // namespace lockstep
