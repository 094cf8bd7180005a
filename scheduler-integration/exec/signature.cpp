#include "scheduler-integration/exec/signature.hpp"

#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/exec/sha256.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <munge.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace lockstep::exec {
namespace {

constexpr std::int64_t kDay = 86'400;
constexpr std::int64_t kClockSkew = 300;

// Days of whose signatures no job can be there any more: their counts go.
void remove_old_days(int state, std::int64_t oldest) {
    const int copy = ::openat(state, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* days = copy < 0 ? nullptr : ::fdopendir(copy);
    if (days == nullptr) {
        return;
    }
    while (const dirent* day = ::readdir(days)) {
        const std::string name = day->d_name;
        const bool number =
            !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
        if (!number || std::strtoll(name.c_str(), nullptr, 10) >= oldest) {
            continue;
        }
        const int fd =
            ::openat(state, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR* files = fd < 0 ? nullptr : ::fdopendir(fd);
        while (const dirent* file = files == nullptr ? nullptr : ::readdir(files)) {
            ::unlinkat(fd, file->d_name, 0);
        }
        if (files != nullptr) {
            ::closedir(files);
        }
        ::unlinkat(state, name.c_str(), AT_REMOVEDIR);
    }
    ::closedir(days);
}

// The file is "<job id> <count>\n"; empty when it is new.
std::string read_count(int fd, const std::string& job, long& count) {
    char text[64] = {};
    if (::flock(fd, LOCK_EX) != 0 || ::pread(fd, text, sizeof text - 1, 0) < 0) {
        return "the count cannot be read";
    }
    count = 0;
    if (text[0] == '\0') {
        return "";
    }
    if (std::strncmp(text, job.c_str(), job.size()) != 0 || text[job.size()] != ' ') {
        return "the signature is another job's";
    }
    const char* digits = text + job.size() + 1;
    char* end = nullptr;
    count = std::strtol(digits, &end, 10);
    return end == digits || *end != '\n' || count < 0 ? "the count cannot be read" : "";
}

bool write_count(int fd, const std::string& job, long count) {
    const std::string text = job + " " + std::to_string(count) + "\n";
    const auto size = static_cast<ssize_t>(text.size());
    return ::pwrite(fd, text.data(), text.size(), 0) == size && ::ftruncate(fd, size) == 0 &&
           ::fdatasync(fd) == 0;
}

std::string count_in(int fd, const std::string& job, long most) {
    long count = 0;
    std::string problem = read_count(fd, job, count);
    if (problem.empty() && count >= most) {
        problem = "the signature has been used " + std::to_string(count) + " times";
    }
    if (problem.empty() && !write_count(fd, job, count + 1)) {
        problem = "the count cannot be kept";
    }
    // The descriptor stays open as long as sbatch runs; others count meanwhile.
    ::flock(fd, LOCK_UN);
    return problem;
}

// The count's file, which `folder` gets a descriptor of as well; -1: there is none.
int open_count(int state, const Signature& signature, unsigned point, bool make, int& folder) {
    const std::string day = std::to_string(signature.made_at / kDay);
    if (make && ::mkdirat(state, day.c_str(), 0700) == 0) {
        ::fsync(state);
    }
    folder = ::openat(state, day.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const std::string name = signature.hash + "-" + std::to_string(point);
    return folder < 0
               ? -1
               : ::openat(folder, name.c_str(),
                          (make ? O_RDWR | O_CREAT : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC, 0600);
}

void close_all(std::initializer_list<int> descriptors) {
    for (const int open : descriptors) {
        if (open >= 0) {
            ::close(open);
        }
    }
}

}  // namespace

std::string check_age(const Config& config, std::int64_t made_at, std::int64_t now) {
    if (made_at > now + kClockSkew) {
        return "the signature is of the future";
    }
    return now - made_at > config.max_days * kDay
               ? "the signature is older than " + std::to_string(config.max_days) + " days"
               : "";
}

std::string check_payload(const std::string& audience, const char* payload, std::size_t size,
                          const char* statement, std::string& hash) {
    const std::size_t prefix = sizeof kSigned - 1;
    if (payload == nullptr || size != kPayloadBytes || std::memcmp(payload, kSigned, prefix) != 0) {
        return "the credential signs something else";
    }
    const std::string head = kStatementHead + audience + "\n";
    if (std::strncmp(statement, head.c_str(), head.size()) != 0) {
        return "the statement is for another audience than " + audience;
    }
    char own[65];
    sha256_hex(statement, std::strlen(statement), own);
    if (std::memcmp(payload + prefix, own, 64) != 0) {
        return "the credential signs another statement";
    }
    hash = own;
    return "";
}

std::string verify(const Config& config, const Order& order, Signature& out) {
    munge_ctx_t context = ::munge_ctx_create();
    if (context == nullptr || (!config.munge_socket.empty() &&
                               ::munge_ctx_set(context, MUNGE_OPT_SOCKET,
                                               config.munge_socket.c_str()) != EMUNGE_SUCCESS)) {
        return "munge cannot be used";
    }
    void* payload = nullptr;
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    const munge_err_t said = ::munge_decode(order.credential, context, &payload, &size, &uid, &gid);
    time_t made = 0;
    const bool timed = ::munge_ctx_get(context, MUNGE_OPT_ENCODE_TIME, &made) == EMUNGE_SUCCESS;
    ::munge_ctx_destroy(context);
    // With these two the payload and the user have been proven all the same (munge_decode(3)).
    std::string problem;
    if (said != EMUNGE_SUCCESS && said != EMUNGE_CRED_EXPIRED && said != EMUNGE_CRED_REPLAYED) {
        problem = std::string{"munge: "} + ::munge_strerror(said);
    } else if (!timed || made <= 0) {
        problem = "munge does not say when the credential was made";
    } else {
        problem =
            check_payload(config.audience, static_cast<const char*>(payload),
                          static_cast<std::size_t>(std::max(size, 0)), order.statement, out.hash);
    }
    std::free(payload);
    if (!problem.empty()) {
        return problem;
    }
    const auto& callers = config.callers;
    if (uid < config.minimum_uid || uid == 0 ||
        std::find(callers.begin(), callers.end(), uid) != callers.end()) {
        return "user " + std::to_string(uid) + " is none in whose name may be acted";
    }
    if (!find_person(uid, out.signer) || out.signer.gid == 0) {
        return "user " + std::to_string(uid) + " is not known here";
    }
    const auto& users = config.users;
    if (!users.empty() && std::find(users.begin(), users.end(), out.signer.name) == users.end()) {
        return out.signer.name + " is not among the users of the configuration";
    }
    out.made_at = static_cast<std::int64_t>(made);
    return "";
}

std::string count_use(const Config& config, const Order& order, const Signature& signature,
                      std::int64_t now, int& count) {
    count = -1;
    if (std::string problem = check_age(config, signature.made_at, now); !problem.empty()) {
        return problem;
    }
    int state = -1;
    if (std::string problem = open_checked(config.state, true, state); !problem.empty()) {
        return problem;
    }
    remove_old_days(state, now / kDay - config.max_days - limits::kExecCountsKept);
    int folder = -1;
    const int fd = open_count(state, signature, order.point, true, folder);
    std::string problem = fd < 0 || ::fsync(folder) != 0
                              ? "the count cannot be kept"
                              : count_in(fd, order.job, config.submissions);
    if (problem.empty()) {
        count = fd;
    }
    close_all({folder, state, problem.empty() ? -1 : fd});
    return problem;
}

std::string find_use(const Config& config, const Order& order, const Signature& signature) {
    int state = -1;
    if (std::string problem = open_checked(config.state, true, state); !problem.empty()) {
        return problem;
    }
    int folder = -1;
    const int fd = open_count(state, signature, order.point, false, folder);
    long uses = 0;
    std::string problem = fd < 0 ? "" : read_count(fd, order.job, uses);
    if (problem.empty() && uses == 0) {
        problem = "no job was submitted with the signature";
    }
    close_all({folder, state, fd});
    return problem;
}

void take_back(int count, const char* job) {
    long uses = 0;
    if (read_count(count, job, uses).empty() && uses > 0) {
        static_cast<void>(write_count(count, job, uses - 1));
    }
    ::flock(count, LOCK_UN);
}

}  // namespace lockstep::exec
