#include "daemon/backup/staged_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Status sync_folder(const fs::path& path) {
    const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!fd || ::fsync(fd.get()) != 0) {
        return fail(errno_error("sync " + path.string(), errno));
    }
    return {};
}

Result<UniqueFd> open_locked(const fs::path& partial) {
    UniqueFd fd{::open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (!fd) {
        return fail(errno_error("open " + partial.string(), errno));
    }
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        return fail(Errc::conflict, "another process is writing " + partial.string());
    }
    return fd;
}

}  // namespace

Result<StagedFolder> StagedFolder::begin(const fs::path& target) {
    std::error_code ec;
    fs::path whole = fs::absolute(target, ec).lexically_normal();
    if (whole.filename().empty()) {
        whole = whole.parent_path();  // it was written with a slash at its end
    }
    if (fs::exists(fs::symlink_status(whole, ec)) &&
        !(fs::is_directory(whole, ec) && fs::is_empty(whole, ec))) {
        return fail(Errc::conflict, whole.string() + " is there already: name a new folder");
    }
    const fs::path partial = whole.parent_path() / ("." + whole.filename().string() + ".partial");
    if (::mkdir(partial.c_str(), 0700) != 0) {
        if (errno != EEXIST) {
            return fail(errno_error("mkdir " + partial.string(), errno));
        }
        // What a kill has left.
        const auto old = open_locked(partial);
        LOCKSTEP_TRY(old);
        fs::remove_all(partial, ec);
        if (ec || ::mkdir(partial.c_str(), 0700) != 0) {
            return fail(errno_error("clear " + partial.string(), ec ? ec.value() : errno));
        }
    }
    auto lock = open_locked(partial);
    LOCKSTEP_TRY(lock);
    return StagedFolder{std::move(whole), partial, std::move(*lock)};
}

Status StagedFolder::finish() {
    if (::syncfs(lock_.get()) != 0) {
        return fail(errno_error("sync " + partial_.string(), errno));
    }
    // An empty folder gives way; anything else that has come meanwhile does not.
    if (::rename(partial_.c_str(), target_.c_str()) != 0) {
        return fail(errno_error("rename to " + target_.string(), errno));
    }
    lock_.reset();
    return sync_folder(target_.parent_path());
}

StagedFolder::~StagedFolder() {
    if (lock_) {
        std::error_code ignored;
        fs::remove_all(partial_, ignored);
    }
}

}  // namespace lockstep
