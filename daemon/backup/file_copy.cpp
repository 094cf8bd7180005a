#include "daemon/backup/file_copy.hpp"

#include "daemon/backup/backup_limits.hpp"
#include "job/base/digest.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kPiece = 1U << 20U;
constexpr mode_t kPermissions = 0777;

bool is_gone(int error) {
    return error == ENOENT || error == ENOTDIR || error == ELOOP;
}

Status put_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const auto put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0) {
            return fail(errno_error("write", errno));
        }
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return {};
}

// What a file has from `at` on, which is below `end`: a hole up to `begin`, then data up to `end`.
struct Piece {
    off_t begin;
    off_t end;
};

// All of it is data where the file system knows no holes; nothing is left (both are `at`) where the
// file was cut meanwhile.
Piece next_piece(int fd, off_t at, off_t end) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data >= end) {
        return {end, end};
    }
    if (data >= 0) {
        const off_t hole = ::lseek(fd, data, SEEK_HOLE);
        return {data, hole > data ? std::min(hole, end) : end};
    }
    struct stat info = {};
    if (errno == ENXIO && ::fstat(fd, &info) == 0) {  // a hole up to its end
        const off_t rest = std::clamp(info.st_size, at, end);
        return {rest, rest};
    }
    return {at, end};
}

// Reads an open file to the length it has now; `to` -1 = only hashes it. The middle of a long rank
// log is a hole, by which its readers know that something was dropped, and which may be larger than
// the disk: it is hashed as the zeros that it reads as, and stays a hole.
Result<FileEntry> read_through(int from, int to, const StopAsked& stop) {
    struct stat info = {};
    if (::fstat(from, &info) != 0) {
        return fail(errno_error("look at it", errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return fail(Errc::invalid, "not a regular file");
    }
    FileEntry out;
    out.mode = info.st_mode & kPermissions;
    out.modified = info.st_mtim.tv_sec;
    Sha256 hash;
    std::vector<char> buffer(kPiece);
    Piece piece{0, 0};
    while (out.bytes < info.st_size) {
        if (stop()) {
            return fail(Errc::cancelled, "was asked to stop");
        }
        if (out.bytes == piece.end) {
            piece = next_piece(from, out.bytes, info.st_size);
            if (piece.end == out.bytes) {
                break;  // it was cut meanwhile
            }
        }
        const bool hole = out.bytes < piece.begin;
        const off_t end = hole ? piece.begin : piece.end;
        auto got = static_cast<ssize_t>(std::min(end - out.bytes, static_cast<off_t>(kPiece)));
        if (hole) {
            std::fill_n(buffer.begin(), got, '\0');
        } else {
            got = ::pread(from, buffer.data(), static_cast<std::size_t>(got), out.bytes);
        }
        if (got < 0) {
            return fail(Error{Errc::unavailable, errno_error("read", errno).message});
        }
        if (got == 0) {
            break;  // it was cut meanwhile
        }
        const std::string_view bytes{buffer.data(), static_cast<std::size_t>(got)};
        hash.add(bytes);
        if (to >= 0 && hole && ::lseek(to, got, SEEK_CUR) < 0) {
            return fail(errno_error("leave a hole", errno));
        }
        if (to >= 0 && !hole) {
            LOCKSTEP_TRY(put_all(to, bytes));
        }
        out.bytes += got;
    }
    if (to >= 0 && ::ftruncate(to, out.bytes) != 0) {  // a hole at the end
        return fail(errno_error("set length", errno));
    }
    out.sha256 = hash.hex();
    return out;
}

// Whatever was wrong with what is read costs that file; with what is written, the copy.
bool only_this_file(const Error& error) {
    return error.code == Errc::unavailable || error.code == Errc::invalid ||
           error.code == Errc::denied;
}

Status keep_time(int fd, std::int64_t modified) {
    const std::array<timespec, 2> times{timespec{modified, 0}, timespec{modified, 0}};
    return ::futimens(fd, times.data()) == 0 ? Status{} : fail(errno_error("set time", errno));
}

class FolderCopy {
  public:
    FolderCopy(const LeaveOut& leave_out, const StopAsked& stop,
               const std::function<Status(FileEntry)>& done)
        : leave_out_(leave_out), stop_(stop), done_(done) {}

    // `from`: open folder, taken. `below`: its path below the first, "" or ending in /.
    Status copy(UniqueFd from, const std::filesystem::path& to, const std::string& prefix,
                const std::string& below, int depth) {
        const int number = from.get();
        const std::unique_ptr<DIR, int (*)(DIR*)> folder{::fdopendir(number), ::closedir};
        if (!folder) {
            return fail(errno_error("read a folder", errno));
        }
        from.release();  // the DIR's from now on
        if (::mkdir(to.c_str(), 0700) != 0 && errno != EEXIST) {
            return fail(errno_error("mkdir " + to.string(), errno));
        }
        std::vector<std::string> names;
        while (const dirent* entry = ::readdir(folder.get())) {
            const std::string name = entry->d_name;
            if (name != "." && name != "..") {
                names.push_back(name);
            }
        }
        std::sort(names.begin(), names.end());
        for (const std::string& name : names) {
            if (stop_()) {
                return fail(Errc::cancelled, "was asked to stop");
            }
            if (Status one = copy_entry(number, name, to, prefix, below, depth); !one) {
                return one;
            }
        }
        return {};
    }

  private:
    Status copy_entry(int folder, const std::string& name, const std::filesystem::path& to,
                      const std::string& prefix, const std::string& below, int depth) {
        struct stat info = {};
        if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
            return is_gone(errno) ? Status{} : leave(prefix, below + name, 0, "not readable");
        }
        const std::string path = below + name;
        if (S_ISDIR(info.st_mode)) {
            UniqueFd inner{
                ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
            if (!inner || depth >= limits::kBackupFolderDepth) {
                return !inner && is_gone(errno) ? Status{}
                                                : leave(prefix, path, 0, "folder not readable");
            }
            return copy(std::move(inner), to / name, prefix, path + "/", depth + 1);
        }
        if (std::string why = leave_out_(path); !why.empty()) {
            return leave(prefix, path, info.st_size, std::move(why));
        }
        if (S_ISLNK(info.st_mode)) {
            return copy_link(folder, name, to, prefix, path);
        }
        if (!S_ISREG(info.st_mode)) {
            return leave(prefix, path, 0, "not a regular file");
        }
        return copy_file(folder, name, to / name, prefix, path, info.st_size);
    }

    Status copy_link(int folder, const std::string& name, const std::filesystem::path& to,
                     const std::string& prefix, const std::string& path) {
        std::array<char, PATH_MAX> target{};
        const auto length = ::readlinkat(folder, name.c_str(), target.data(), target.size());
        if (length <= 0) {
            return is_gone(errno) ? Status{} : leave(prefix, path, 0, "link not readable");
        }
        FileEntry entry;
        entry.path = prefix + path;
        entry.link.assign(target.data(), static_cast<std::size_t>(length));
        if (::symlink(entry.link.c_str(), (to / name).c_str()) != 0) {
            return fail(errno_error("make link " + (to / name).string(), errno));
        }
        return done_(std::move(entry));
    }

    Status copy_file(int folder, const std::string& name, const std::filesystem::path& to,
                     const std::string& prefix, const std::string& path, std::int64_t bytes) {
        const UniqueFd from{
            ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
        if (!from) {
            return is_gone(errno) ? Status{}
                                  : leave(prefix, path, bytes,
                                          std::string{"not readable: "} + std::strerror(errno));
        }
        const UniqueFd into{
            ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
        if (!into) {
            return fail(errno_error("create " + to.string(), errno));
        }
        auto entry = read_through(from.get(), into.get(), stop_);
        if (!entry && only_this_file(entry.error())) {
            ::unlink(to.c_str());
            return leave(prefix, path, bytes, entry.error().message);
        }
        if (!entry) {
            return fail(entry.error().in(to.string()));
        }
        if (Status kept = keep_time(into.get(), entry->modified); !kept) {
            return kept;
        }
        entry->path = prefix + path;
        return done_(std::move(*entry));
    }

    Status leave(const std::string& prefix, const std::string& path, std::int64_t bytes,
                 std::string why) {
        FileEntry entry;
        entry.path = prefix + path;
        entry.bytes = bytes;
        entry.left_out = std::move(why);
        return done_(std::move(entry));
    }

    const LeaveOut& leave_out_;
    const StopAsked& stop_;
    const std::function<Status(FileEntry)>& done_;
};

}  // namespace

Status copy_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& prefix, const LeaveOut& leave_out, const StopAsked& stop,
                   const std::function<Status(FileEntry)>& done) {
    UniqueFd folder{::open(from.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder) {
        return fail(errno_error("open " + from.string(), errno));
    }
    return FolderCopy{leave_out, stop, done}.copy(std::move(folder), to, prefix, "", 0);
}

Result<FileEntry> copy_plain_file(const std::filesystem::path& from,
                                  const std::filesystem::path& to, const StopAsked& stop) {
    const UniqueFd source{::open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!source) {
        return fail(errno_error("open " + from.string(), errno));
    }
    const UniqueFd into{
        ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)};
    if (!into) {
        return fail(errno_error("create " + to.string(), errno));
    }
    auto entry = read_through(source.get(), into.get(), stop);
    if (entry) {
        LOCKSTEP_TRY(keep_time(into.get(), entry->modified));
    }
    return entry ? std::move(entry) : fail(entry.error().in(from.string()));
}

Result<FileEntry> hash_file(const std::filesystem::path& file, const StopAsked& stop) {
    const UniqueFd source{::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!source) {
        return fail(errno_error("open " + file.string(), errno));
    }
    auto entry = read_through(source.get(), -1, stop);
    return entry ? std::move(entry) : fail(entry.error().in(file.string()));
}

}  // namespace lockstep
