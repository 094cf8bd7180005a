#include "daemon/lockstepd/data_directory.hpp"

#include "daemon/store/database.hpp"
#include "daemon/store/token_records.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace lockstep {
namespace {

// Who in a container has no user here owns what is shown as this one's.
uid_t overflow_user() {
    constexpr uid_t kUsual = 65534;
    const auto text = read_file("/proc/sys/kernel/overflowuid", 32);
    return text ? static_cast<uid_t>(std::strtoul(text->c_str(), nullptr, 10)) : kUsual;
}

std::string mode_of(const struct stat& info) {
    constexpr mode_t kBits = 07777;
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(info.st_mode & kBits));
    return text.data();
}

// Somebody else who may write to the folder could put a token, an address or a database of their
// own into it, and whoever may rename the folder another folder. As sshd's StrictModes, but for
// groups that may write to a folder above it: that is how many homes are.
Status check_is_ours(const std::filesystem::path& path) {
    std::error_code ec;
    const auto real = std::filesystem::canonical(path, ec);
    struct stat info = {};
    if (ec || ::stat(real.c_str(), &info) != 0) {
        return fail(errno_error("look at " + path.string(), ec ? ec.value() : errno));
    }
    const uid_t us = ::geteuid();
    if (info.st_uid != us) {
        return fail(Errc::denied, real.string() + " belongs to uid " + std::to_string(info.st_uid) +
                                      ", lockstepd runs as uid " + std::to_string(us));
    }
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return fail(Errc::denied,
                    real.string() + " has mode " + mode_of(info) +
                        ", so that others may write to it: chmod 700 it, after checking "
                        "what is in it");
    }
    const uid_t nobody = overflow_user();
    for (auto folder = real.parent_path(); ::stat(folder.c_str(), &info) == 0;
         folder = folder.parent_path()) {
        const bool open = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
        if (open || (info.st_uid != 0 && info.st_uid != us && info.st_uid != nobody)) {
            return fail(Errc::denied, real.string() + ": " + folder.string() + " above it " +
                                          (open ? "has mode " + mode_of(info)
                                                : "belongs to uid " + std::to_string(info.st_uid)) +
                                          ", so that others may put another folder in its place");
        }
        if (folder == folder.root_path()) {
            break;
        }
    }
    return {};
}

}  // namespace

Result<DataDirectory> DataDirectory::open(const std::filesystem::path& path, bool as_it_is) {
    LOCKSTEP_TRY(make_private_directories(path));
    if (auto ours = check_is_ours(path); !ours) {
        if (!as_it_is) {
            return fail(ours.error().code, ours.error().message +
                                               "; --any-data-dir takes it as it is, where all of "
                                               "them are trusted");
        }
        log::warn("the data directory is others' too", {{"what", ours.error().message}});
    }
    const auto lock_path = path / "lock";
    UniqueFd lock{::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (!lock) {
        return fail(errno_error("open " + lock_path.string(), errno));
    }
    // A record lock is this process's alone: an agent on its way from fork to exec, when its
    // lockstepd is killed, does not keep it.
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(lock.get(), F_SETLK, &whole) != 0) {
        if (errno == EACCES || errno == EAGAIN) {
            return fail(Errc::conflict,
                        "another lockstepd is using " + path.string() + "; one at a time");
        }
        return fail(errno_error("lock " + lock_path.string(), errno));
    }
    // Of the one before: until this one listens nobody's address is here.
    DataDirectory out{path, std::move(lock)};
    out.forget_url();
    return out;
}

Status DataDirectory::ensure_token(Database& database, const std::string& user, UnixMillis now) {
    const auto file = path_ / "token";
    const auto known = TokenRecords{database}.all();
    LOCKSTEP_TRY(known);
    if (const auto text = read_file(file, 4096)) {
        const std::string hash = sha256_hex(trim(*text));
        if (std::any_of(known->begin(), known->end(), [&](const TokenRow& row) {
                return row.sha256 == hash && row.revoked_at == 0;
            })) {
            return {};
        }
    }
    const std::string token = "lks_" + random_secret();
    TokenRow row;
    row.id = "tk-" + random_secret().substr(0, 12);
    row.sha256 = sha256_hex(token);
    row.name = "first";
    row.user = user;
    row.role = "admin";
    row.created_at = now;
    if (auto begun = database.begin(); !begun) {
        return begun;
    }
    if (auto added = TokenRecords{database}.add(row); !added) {
        database.rollback();
        return added;
    }
    if (auto done = database.commit(); !done) {
        return done;
    }
    log::info("a token was made", {{"file", file.string()}, {"user", user}});
    return write_file_atomic(file, token + "\n", 0600);
}

Status DataDirectory::write_url(const std::string& url) {
    return write_file_atomic(path_ / "url", url + "\n", 0644);
}

// The port may be somebody else's soon.
void DataDirectory::forget_url() const {
    std::error_code ignored;
    std::filesystem::remove(path_ / "url", ignored);
}

std::filesystem::path default_data_directory() {
    if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/') {
        return std::filesystem::path{data} / "lockstep";
    }
    const char* home = std::getenv("HOME");
    if (home == nullptr || *home != '/') {
        const passwd* entry = ::getpwuid(::getuid());
        home = entry != nullptr ? entry->pw_dir : "/";
    }
    return std::filesystem::path{home} / ".local/share/lockstep";
}

std::string user_name() {
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr ? entry->pw_name : "uid-" + std::to_string(::getuid());
}

}  // namespace lockstep
