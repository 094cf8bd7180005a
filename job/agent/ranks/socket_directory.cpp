#include "job/agent/ranks/socket_directory.hpp"

#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/log.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace lockstep {
namespace {

// A descriptor that holds the folder's lock; empty if somebody else holds it.
UniqueFd lock_folder(const std::filesystem::path& path) {
    UniqueFd fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)};
    if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        fd.reset();
    }
    return fd;
}

// Not a link, this user's, and nobody else's to look into.
bool is_private(const std::filesystem::path& path) {
    struct stat info{};
    return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
           info.st_uid == ::geteuid() && (info.st_mode & 0077U) == 0;
}

// Removes the folders whose names begin like that and that nobody holds. Younger ones than a minute
// may be about to be locked.
void sweep(const std::filesystem::path& base, const std::string& beginning = {}) {
    std::error_code ec;
    std::vector<std::filesystem::path> stale;
    const auto young = std::filesystem::file_time_type::clock::now() - std::chrono::minutes{1};
    for (auto entry = std::filesystem::directory_iterator(base, ec);
         !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec)) {
        std::error_code unknown;
        if (entry->path().filename().string().starts_with(beginning) && is_private(entry->path()) &&
            entry->last_write_time(unknown) < young && !unknown && lock_folder(entry->path())) {
            stale.push_back(entry->path());
        }
    }
    for (const auto& path : stale) {
        std::filesystem::remove_all(path, ec);
    }
}

// A private folder for one agent in the one that all of this user's agents share; invalid: that
// name is taken by something else.
Result<std::string> make_shared_folder(const std::string& mine) {
    if (::mkdir(mine.c_str(), 0700) != 0 && errno != EEXIST) {
        return fail(file_error("mkdir", mine, errno));
    }
    if (!is_private(mine)) {
        return fail(Errc::invalid, mine + ": not a private folder of this user");
    }
    sweep(mine);
    std::string path = mine + "/" + random_secret().substr(0, 12);
    if (::mkdir(path.c_str(), 0700) != 0) {
        return fail(file_error("mkdir", path, errno));
    }
    return path;
}

// The same under a name that nobody could have taken before.
Result<std::string> make_own_folder(const std::filesystem::path& mine) {
    const std::string beginning = mine.filename().string() + "-";
    sweep(mine.parent_path(), beginning);
    std::string path = (mine.parent_path() / (beginning + "XXXXXX")).string();
    if (::mkdtemp(path.data()) == nullptr) {
        return fail(file_error("mkdtemp", path, errno));
    }
    if (!is_private(path)) {
        return fail(Errc::invalid, path + ": not a private folder of this user");
    }
    return path;
}

}  // namespace

Result<SocketDirectory> SocketDirectory::create() {
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    std::vector<std::string> bases;
    if (runtime != nullptr && *runtime == '/' && std::strlen(runtime) < 40) {
        bases.emplace_back(runtime);
    }
    bases.emplace_back("/tmp");
    return create(bases);
}

Result<SocketDirectory> SocketDirectory::create(const std::vector<std::string>& bases) {
    std::string problem;
    for (const auto& base : bases) {
        const std::string mine = base + "/lockstep-" + std::to_string(::geteuid());
        auto path = make_shared_folder(mine);
        if (!path) {
            const std::string why = path.error().message;
            path = make_own_folder(mine);
            if (path) {
                log::warn("the report sockets are in a folder of their own",
                          {{"folder", *path}, {"why", why}});
            } else {
                problem += (problem.empty() ? "" : "; ") + why + "; " + path.error().message;
            }
        }
        if (path) {
            UniqueFd lock = lock_folder(*path);
            return SocketDirectory{std::move(*path), std::move(lock)};
        }
    }
    return fail(Errc::unavailable, "no folder for the report sockets: " + problem);
}

SocketDirectory::~SocketDirectory() {
    if (!path_.empty()) {
        std::error_code ec;
        std::filesystem::remove_all(path_, ec);
    }
}

std::string SocketDirectory::socket_path(std::int32_t local_rank) const {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "/r%05d.sock", local_rank);
    return path_ + name.data();
}

}  // namespace lockstep
