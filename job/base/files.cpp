#include "job/base/files.hpp"

#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace lockstep {

Result<std::string> read_file(const std::filesystem::path& path, std::size_t cap) {
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (!fd) {
        return fail(errno_error("open " + path.string(), errno));
    }
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

namespace {

Status write_and_rename(const std::filesystem::path& path, std::string_view bytes, unsigned mode,
                        bool durable) {
    const std::string temporary = path.string() + ".tmp." + std::to_string(::getpid());
    UniqueFd fd{
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode)};
    if (!fd) {
        return fail(errno_error("create " + temporary, errno));
    }
    const auto give_up = [&](std::string_view what) {
        const int number = errno;
        ::unlink(temporary.c_str());
        return fail(errno_error(std::string{what} + " " + temporary, number));
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
    const UniqueFd folder{::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder || ::fsync(folder.get()) != 0) {
        return fail(errno_error("sync folder of " + path.string(), errno));
    }
    return {};
}

}  // namespace

Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
    return write_and_rename(path, bytes, mode, true);
}

Status replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode) {
    return write_and_rename(path, bytes, mode, false);
}

Status make_private_directories(const std::filesystem::path& path) {
    std::filesystem::path built;
    for (const auto& part : path) {
        built /= part;
        if (::mkdir(built.c_str(), 0700) != 0 && errno != EEXIST && errno != EISDIR &&
            errno != EROFS && errno != EACCES) {
            return fail(errno_error("mkdir " + built.string(), errno));
        }
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
        return fail(errno_error("mkdir " + path.string(), errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return fail(Errc::invalid, path.string() + ": not a directory");
    }
    return {};
}

}  // namespace lockstep
