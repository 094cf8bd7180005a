#include "daemon/http/auth/audit_log.hpp"

#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t kPathBytes = 512;  // of a request's path; ours are shorter
constexpr auto kTryAgain = std::chrono::seconds{1};

Json line_of(const Clock& clock, const std::string& remote) {
    Json line = Json::object();
    line["time"] = to_rfc3339(clock.wall());
    line["remote"] = remote;
    return line;
}

std::string short_path(std::string_view path) {
    return printable(path.substr(0, kPathBytes));
}

}  // namespace

AuditLog::AuditLog(std::filesystem::path file, const Clock& clock,
                   std::function<void(std::size_t)> lost)
    : file_(std::move(file)),
      clock_(clock),
      lost_(std::move(lost)),
      refusals_{limits::kAuditRefusalsAtOnce, limits::kAuditRefusalsAtOnce, clock.steady(), 0},
      failures_{limits::kAuditFailuresAtOnce, limits::kAuditFailuresAtOnce, clock.steady(), 0},
      thread_([this] { run(); }) {}

AuditLog::~AuditLog() {
    {
        const std::lock_guard lock{mutex_};
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void AuditLog::answered(const AuditEntry& entry, int status, std::string_view made) {
    Json line = line_of(clock_, entry.remote);
    if (!entry.user.empty()) {
        line["user"] = entry.user;
        line["token"] = entry.token;
    }
    if (!entry.session.empty()) {
        line["session"] = entry.session;
    }
    line["operation"] = entry.operation;
    line["path"] = short_path(entry.path);
    if (!entry.owner.empty()) {
        line["owner"] = entry.owner;
    }
    line["status"] = status;
    if (!made.empty()) {
        line["made"] = made;
    }
    constexpr int kFirstFailure = 400;
    if (status < kFirstFailure || take(failures_, line)) {
        put(dump_json(line));
    }
}

bool AuditLog::take(Budget& budget, Json& line) const {
    const auto now = clock_.steady();
    const double seconds = std::chrono::duration<double>(now - budget.since).count();
    budget.since = now;
    budget.room = std::min(budget.room + std::max(seconds, 0.0), budget.most);
    if (budget.room < 1) {
        ++budget.unwritten;
        return false;
    }
    budget.room -= 1;
    if (budget.unwritten > 0) {
        line["not_written"] = std::exchange(budget.unwritten, 0);
    }
    return true;
}

void AuditLog::refused(std::string_view what, const std::string& remote, const std::string& path,
                       const AuditOwner& owner) {
    Json line = line_of(clock_, remote);
    const std::string shown = short_path(path);
    line["refused"] = what;
    line["path"] = shown;
    if (!owner.user.empty()) {
        line["owner"] = owner.user;
        line["token"] = owner.token;
    }
    if (!take(refusals_, line)) {
        return;
    }
    log::warn("refused", {{"what", what}, {"remote", remote}, {"path", shown}});
    put(dump_json(line));
}

void AuditLog::put(std::string line) {
    line += '\n';
    {
        const std::lock_guard lock{mutex_};
        if (waiting_.size() + line.size() <= limits::kAuditWaitingBytes) {
            waiting_ += line;
            ++lines_;
            line.clear();
        }
    }
    if (line.empty()) {
        wake_.notify_one();
    } else if (lost_) {
        lost_(1);
    }
}

bool AuditLog::flush() {
    std::unique_lock lock{mutex_};
    const auto done = [this] { return waiting_.empty() && !writing_; };
    // A batch that is on its way has not what waits.
    const std::uint64_t tried = tries_ + (writing_ ? 2U : 1U);
    now_ = true;
    wake_.notify_one();
    written_.wait(lock, [&] { return done() || tries_ >= tried; });
    return done();
}

void AuditLog::run() {
    std::unique_lock lock{mutex_};
    for (;;) {
        if (failed_) {
            wake_.wait_for(lock, kTryAgain, [this] { return stopping_ || now_; });
        } else {
            wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        }
        if (waiting_.empty()) {
            if (stopping_) {
                return;
            }
            continue;
        }
        now_ = false;
        std::string text;
        text.swap(waiting_);
        const std::size_t lines = std::exchange(lines_, 0);
        writing_ = true;
        lock.unlock();
        const bool good = append(text);
        lock.lock();
        writing_ = false;
        if (!good) {
            if (stopping_) {
                if (lost_) {
                    lost_(lines + lines_);
                }
                return;
            }
            waiting_.insert(0, text);
            lines_ += lines;
        }
        failed_ = !good;
        ++tries_;
        written_.notify_all();
    }
}

// All of it or nothing: what a full disk took of it is cut off again.
bool AuditLog::append(const std::string& text) const {
    const UniqueFd file{
        ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!file) {
        log::error("the audit log cannot be opened",
                   {{"file", file_.string()}, {"what", std::strerror(errno)}});
        return false;
    }
    const off_t begin = ::lseek(file.get(), 0, SEEK_END);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            log::error("the audit log cannot be written",
                       {{"file", file_.string()}, {"what", std::strerror(errno)}});
            if (done > 0 && begin >= 0 && ::ftruncate(file.get(), begin) != 0) {
                log::error("a part of a line stays in the audit log", {{"file", file_.string()}});
            }
            return false;
        }
        done += static_cast<std::size_t>(wrote);
    }
    return true;
}

}  // namespace lockstep
