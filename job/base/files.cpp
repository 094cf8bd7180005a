#include "job/base/files.hpp"

#include "job/base/mounts.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t kGrowth = 1U << 20U;  // of a log while it is read

constexpr std::size_t kMountsBytes = 4U << 20U;

// "/scratch, nfs4"; nothing: not known.
std::string file_system_of(const std::filesystem::path& path) {
    std::error_code unknown;
    const std::string whole = std::filesystem::weakly_canonical(path, unknown).string();
    if (unknown || whole.empty()) {
        return "";  // else it would be the root's
    }
    const auto text = read_file("/proc/self/mountinfo", kMountsBytes);
    Mount best;
    for (Mount& one : parse_mounts(text ? *text : "")) {
        const bool inside =
            one.point == "/" || whole == one.point || whole.starts_with(one.point + "/");
        if (inside && one.point.size() >= best.point.size()) {
            best = std::move(one);  // a later one covers an earlier one
        }
    }
    return best.point.empty() ? "" : best.point + ", " + best.type;
}

Result<std::string> read_all(const UniqueFd& fd, const std::filesystem::path& path,
                             std::size_t cap) {
    std::string bytes;
    for (;;) {
        const std::size_t before = bytes.size();
        bytes.resize(before + 16'384);
        const auto got = ::read(fd.get(), bytes.data() + before, 16'384);
        if (got < 0) {
            return fail(errno_error("read " + path.string(), errno));
        }
        bytes.resize(before + static_cast<std::size_t>(got));
        if (bytes.size() > cap) {
            return fail(Errc::exhausted, path.string() + ": larger than allowed");
        }
        if (got == 0) {
            return bytes;
        }
    }
}

struct ForeignFolder {
    std::filesystem::path folder;
    OpenForeign open;
};

ForeignFolder& foreign() {
    static ForeignFolder one;
    return one;
}

Result<UniqueFd> open_plain(const std::filesystem::path& path) {
    if (is_foreign(path)) {
        return open_foreign(path);
    }
    UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
    if (!fd && (errno == ELOOP || errno == ENXIO)) {
        return fail(Errc::denied, path.string() + ": not a regular file");
    }
    if (!fd) {
        return fail(errno_error("open " + path.string(), errno));
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return fail(Errc::denied, path.string() + ": not a regular file");
    }
    return fd;
}

Status write_and_rename(const std::filesystem::path& path, std::string_view bytes, unsigned mode,
                        bool durable) {
    const std::string temporary = path.string() + ".tmp." + std::to_string(::getpid());
    // Never into what is there: in a folder that is shared it may be another's, or a pipe.
    ::unlink(temporary.c_str());
    UniqueFd fd{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)};
    if (!fd) {
        // Of what was asked for: the other name is nobody's business.
        return fail(file_error("create", path, errno));
    }
    const auto give_up = [&](std::string_view what) {
        const int number = errno;
        ::unlink(temporary.c_str());
        return fail(file_error(what, path, number));
    };
    while (!bytes.empty()) {
        const auto put = ::write(fd.get(), bytes.data(), bytes.size());
        if (put < 0) {
            return give_up("write");
        }
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    if (::fchmod(fd.get(), mode) != 0 || (durable && ::fsync(fd.get()) != 0)) {
        return give_up("sync");
    }
    fd.reset();
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
        return give_up("rename");
    }
    if (!durable) {
        return {};
    }
    const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
    const UniqueFd folder{::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder || ::fsync(folder.get()) != 0) {
        return fail(file_error("sync folder of", path, errno));
    }
    return {};
}

}  // namespace

Error file_error(std::string_view what, const std::filesystem::path& path, int error_number) {
    Error error = errno_error(std::string{what} + " " + path.string(), error_number);
    if (error_number == ENOSPC || error_number == EDQUOT || error_number == EROFS) {
        if (const std::string where = file_system_of(path); !where.empty()) {
            error.message += " (file system " + where + ")";
        }
    }
    return error;
}

void set_foreign_folder(std::filesystem::path folder, OpenForeign open) {
    foreign() = {std::move(folder), std::move(open)};
}

bool is_foreign(const std::filesystem::path& path) {
    const auto& folder = foreign().folder;
    return !folder.empty() && path.string().starts_with(folder.string() + "/");
}

Result<UniqueFd> open_foreign(const std::filesystem::path& path) {
    return foreign().open(path);
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t cap) {
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    return fd ? read_all(fd, path, cap) : fail(errno_error("open " + path.string(), errno));
}

Result<std::string> read_plain_file(const std::filesystem::path& path, std::size_t cap) {
    const auto fd = open_plain(path);
    return fd ? read_all(*fd, path, cap) : fail(fd.error());
}

Result<std::string> read_plain_tail(const std::filesystem::path& path, std::size_t bytes) {
    const auto fd = open_plain(path);
    LOCKSTEP_TRY(fd);
    const auto size = ::lseek(fd->get(), 0, SEEK_END);
    const auto from = std::max<off_t>(0, size - static_cast<off_t>(bytes));
    if (size < 0 || ::lseek(fd->get(), from, SEEK_SET) < 0) {
        return fail(errno_error("read " + path.string(), errno));
    }
    auto text = read_all(*fd, path, bytes + kGrowth);
    if (text && text->size() > bytes) {
        text->resize(bytes);  // it grew meanwhile
    }
    return text;
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
    return write_and_rename(path, bytes, mode, true);
}

Status replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
    return write_and_rename(path, bytes, mode, false);
}

Status make_private_directories(const std::filesystem::path& path) {
    std::filesystem::path built;
    // What may not be made may be there all the same: whether it is, the next one shows.
    std::optional<Error> refused;
    for (const auto& part : path) {
        built /= part;
        if (::mkdir(built.c_str(), 0700) == 0 || errno == EEXIST || errno == EISDIR) {
            continue;
        }
        if (errno == ENOENT && refused) {
            return fail(*refused);
        }
        const int number = errno;
        Error error = file_error("mkdir", built, number);
        if (number != EROFS && number != EACCES) {
            return fail(std::move(error));
        }
        refused = std::move(error);
    }
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) {
        return fail(errno == ENOENT && refused ? *refused : file_error("mkdir", path, errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return fail(Errc::invalid, path.string() + ": not a directory");
    }
    return {};
}

}  // namespace lockstep
