#include "job/agent/claim.hpp"

#include "job/base/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <string_view>

namespace lockstep {

Result<Claim> Claim::take(const std::filesystem::path& attempt_directory, std::int32_t node_rank,
                          const wire::ClaimFile& content, bool again) {
    const std::filesystem::path path =
        attempt_directory / wire::claim_file_name(node_rank, content.allocation);
    // Held until this one's has its name.
    const UniqueFd last{again ? ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1};
    if (last && ::flock(last.get(), LOCK_EX | LOCK_NB) != 0) {
        return fail(Errc::conflict, "another agent has this node: " + path.string());
    }
    // Written and locked under a name of its own, then given the real name by link(2), which fails
    // if that exists: O_EXCL's guarantee, without the moment in which the claim is empty and
    // unlocked and would read as "its agent died".
    const std::string temporary = path.string() + "." + content.incarnation;
    UniqueFd fd{
        ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0660)};
    if (!fd) {
        return fail(file_error("create", temporary, errno));
    }
    const auto give_up = [&](std::string_view what, const std::filesystem::path& of) {
        const int number = errno;
        ::unlink(temporary.c_str());
        return fail(file_error(what, of, number));
    };
    const std::string bytes = wire::encode_claim_file(content);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        return give_up("lock", temporary);
    }
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
        ::fsync(fd.get()) != 0) {
        return give_up("write", temporary);
    }
    if (last) {
        if (::rename(temporary.c_str(), path.c_str()) != 0) {
            return give_up("rename to", path);
        }
    } else if (::link(temporary.c_str(), path.c_str()) != 0) {
        if (errno == EEXIST) {
            ::unlink(temporary.c_str());
            return fail(Errc::conflict, "this node was claimed before: " + path.string());
        }
        return give_up("link", path);
    }
    ::unlink(temporary.c_str());
    const UniqueFd folder{::open(attempt_directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (!folder || ::fsync(folder.get()) != 0) {
        return fail(file_error("sync", attempt_directory, errno));
    }
    return Claim{std::move(fd)};
}

}  // namespace lockstep
