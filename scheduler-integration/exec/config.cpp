#include "scheduler-integration/exec/config.hpp"

#include "scheduler-integration/exec/exec_limits.hpp"
#include "scheduler-integration/slurm/batch_text.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lockstep::exec {
namespace {

using slurm::is_plain_path;
using slurm::only_of;

std::string trimmed(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r");
    const auto end = text.find_last_not_of(" \t\r");
    return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= text.size();) {
        const auto end = std::min(text.find(',', at), text.size());
        out.push_back(trimmed(text.substr(at, end - at)));
        at = end + 1;
    }
    return out;
}

// 1 to 9 digits; -1 = no number.
long number_of(const std::string& text) {
    if (text.empty() || text.size() > 9 ||
        text.find_first_not_of("0123456789") != std::string::npos) {
        return -1;
    }
    return std::strtol(text.c_str(), nullptr, 10);
}

// A user by name, or a number.
bool add_caller(const std::string& word, std::vector<uid_t>& out) {
    const long number = number_of(word);
    const passwd* entry = number < 0 ? ::getpwnam(word.c_str()) : nullptr;
    if (number < 0 && entry == nullptr) {
        return false;
    }
    out.push_back(entry != nullptr ? entry->pw_uid : static_cast<uid_t>(number));
    return out.back() != 0;
}

bool take_number(const std::string& value, long least, long most, long& out) {
    out = number_of(value);
    return out >= least && out <= most;
}

bool take_path(const std::string& value, std::string& out) {
    out = value;
    return is_plain_path(value) && value.find("//") == std::string::npos &&
           (value + "/").find("/./") == std::string::npos &&
           (value + "/").find("/../") == std::string::npos && value.back() != '/';
}

bool take_key(const std::string& key, const std::string& value, Config& out) {
    long number = 0;
    if (key == "callers") {
        for (const std::string& word : words_of(value)) {
            if (!add_caller(word, out.callers)) {
                return false;
            }
        }
        return true;
    }
    if (key == "users") {
        out.users = words_of(value);
        for (const std::string& user : out.users) {
            if (user.empty() || !only_of(user, "._-") || user == "root") {
                return false;
            }
        }
        return true;
    }
    if (key == "minimum-uid") {
        const bool good = take_number(value, 1, 999'999'999, number);
        out.minimum_uid = static_cast<uid_t>(number);
        return good;
    }
    if (key == "audience") {
        out.audience = value;
        return !value.empty() && value.size() <= 64 && only_of(value, "._-");
    }
    return (key == "max-days" && take_number(value, 1, 3650, out.max_days)) ||
           (key == "submissions" && take_number(value, 1, 100'000, out.submissions)) ||
           (key == "slurm-bin" && take_path(value, out.slurm_bin)) ||
           (key == "slurm-conf" && take_path(value, out.slurm_conf)) ||
           (key == "runs" && take_path(value, out.runs)) ||
           (key == "agent" && take_path(value, out.agent)) ||
           (key == "state" && take_path(value, out.state)) ||
           (key == "munge-socket" && take_path(value, out.munge_socket));
}

std::string check_inode(int fd, bool last, bool folder, const std::string& path) {
    struct stat info{};
    if (::fstat(fd, &info) != 0) {
        return path + ": " + std::strerror(errno);
    }
    const bool is_folder = S_ISDIR(info.st_mode);
    if (is_folder != (!last || folder) || (!is_folder && !S_ISREG(info.st_mode))) {
        return path + (S_ISLNK(info.st_mode) ? " is a link"
                       : !last || folder     ? " is no folder"
                                             : " is no regular file");
    }
    if (info.st_uid != 0) {
        return path + " is not root's";
    }
    const bool sticky = is_folder && (info.st_mode & S_ISVTX) != 0;
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
        return path + " can be written by others than root";
    }
    return "";
}

}  // namespace

std::string read_config(const std::string& text, Config& out) {
    std::vector<std::string> seen;
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find('\n', at), text.size());
        const std::string whole = trimmed(text.substr(at, end - at));
        at = end + 1;
        ++line;
        if (whole.empty() || whole.front() == '#') {
            continue;
        }
        const std::string where = "line " + std::to_string(line) + ": ";
        const auto equals = whole.find('=');
        const std::string key = trimmed(whole.substr(0, equals));
        if (equals == std::string::npos || !only_of(key, "-")) {
            return where + "must be key = value";
        }
        for (const std::string& one : seen) {
            if (one == key) {
                return where + key + " is there twice";
            }
        }
        seen.push_back(key);
        if (!take_key(key, trimmed(whole.substr(equals + 1)), out)) {
            return where + key + " is unknown, or its value cannot be one";
        }
    }
    for (const auto& [key, missing] :
         {std::pair{"callers", out.callers.empty()}, std::pair{"audience", out.audience.empty()},
          std::pair{"slurm-bin", out.slurm_bin.empty()}, std::pair{"runs", out.runs.empty()},
          std::pair{"agent", out.agent.empty()}, std::pair{"state", out.state.empty()}}) {
        if (missing) {
            return std::string{key} + " is missing";
        }
    }
    return "";
}

std::string open_checked(const std::string& path, bool folder, int& out) {
    out = ::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    std::string problem = check_inode(out, false, true, "/");
    for (std::size_t at = 1; problem.empty() && at <= path.size();) {
        const auto end = std::min(path.find('/', at), path.size());
        const bool last = end == path.size();
        const std::string sofar = path.substr(0, end);
        // A pipe is not waited for; that it is none is seen before anything is read.
        const int flags = last ? O_RDONLY | O_NONBLOCK : O_PATH;
        const int next =
            ::openat(out, path.substr(at, end - at).c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
        problem = next >= 0        ? check_inode(next, last, folder, sofar)
                  : errno == ELOOP ? sofar + " is a link"
                                   : sofar + ": " + std::strerror(errno);
        ::close(out);
        out = next;
        at = end + 1;
    }
    if (!problem.empty() && out >= 0) {
        ::close(out);
        out = -1;
    }
    return problem;
}

std::string load_config(const std::string& path, Config& out) {
    int fd = -1;
    std::string ignored;
    if (!take_path(path, ignored)) {
        return path + ": must be an absolute path, without links";
    }
    if (std::string problem = open_checked(path, false, fd); !problem.empty()) {
        return problem;
    }
    std::string text(limits::kExecConfigBytes, '\0');
    const ssize_t got = ::read(fd, text.data(), text.size());
    ::close(fd);
    if (got < 0 || static_cast<std::size_t>(got) == text.size()) {
        return path + " cannot be read, or is too large";
    }
    text.resize(static_cast<std::size_t>(got));
    if (std::string problem = read_config(text, out); !problem.empty()) {
        return path + ": " + problem;
    }
    for (const std::string* folder : {&out.slurm_bin, &out.runs, &out.state}) {
        if (std::string problem = open_checked(*folder, true, fd); !problem.empty()) {
            return problem;
        }
        ::close(fd);
    }
    if (!out.slurm_conf.empty()) {
        if (std::string problem = open_checked(out.slurm_conf, false, fd); !problem.empty()) {
            return problem;
        }
        ::close(fd);
    }
    return "";
}

}  // namespace lockstep::exec
