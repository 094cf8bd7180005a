#include "daemon/control/base/shared_folder.hpp"

#include <pwd.h>
#include <sys/acl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <type_traits>

namespace lockstep {
namespace {

Status set_acl(const std::filesystem::path& folder, acl_type_t type, const std::string& text) {
    const std::unique_ptr<std::remove_pointer_t<acl_t>, int (*)(void*)> list{
        ::acl_from_text(text.c_str()), ::acl_free};
    if (!list || ::acl_set_file(folder.c_str(), type, list.get()) != 0) {
        const int number = errno;
        if (number == ENOTSUP) {
            return fail(Errc::invalid,
                        folder.string() + " is on a file system without POSIX " +
                            "access control lists; put --runs-dir on one that has them");
        }
        return fail(errno_error("access control list of " + folder.string(), number));
    }
    return {};
}

std::string user_entry(uid_t user, const char* rights) {
    return "u:" + std::to_string(user) + ":" + rights + ",";
}

}  // namespace

Result<uid_t> unix_user(const std::string& name) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16'384> room{};
    if (::getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found) != 0 ||
        found == nullptr) {
        return fail(Errc::denied, "there is no Unix user " + name + " on lockstepd's machine");
    }
    return entry.pw_uid;
}

Status let_pass(const std::filesystem::path& folder, uid_t user) {
    if (user == ::geteuid()) {
        return {};
    }
    return set_acl(folder, ACL_TYPE_ACCESS,
                   "u::rwx," + user_entry(user, "--x") + "g::---,m::--x,o::---");
}

Status share_folder(const std::filesystem::path& folder, uid_t user) {
    if (user == ::geteuid()) {
        return {};
    }
    const std::string others = "g::---,m::rwx,o::---";
    const Status now =
        set_acl(folder, ACL_TYPE_ACCESS, "u::rwx," + user_entry(user, "rwx") + others);
    if (!now) {
        return now;
    }
    return set_acl(folder, ACL_TYPE_DEFAULT,
                   "u::rwx," + user_entry(user, "rwx") + user_entry(::geteuid(), "rwx") + others);
}

Status open_to_others(const std::filesystem::path& folder) {
    for (std::filesystem::path at = folder; !at.empty(); at = at.parent_path()) {
        struct stat info{};
        if (::stat(at.c_str(), &info) != 0) {
            return fail(errno_error("stat " + at.string(), errno));
        }
        if ((info.st_mode & S_IXOTH) == 0) {
            return fail(Errc::invalid, at.string() +
                                           " is closed to other users, whose jobs work in " +
                                           folder.string() + ": chmod o+x, or another --runs-dir");
        }
        if (at == at.root_path()) {
            break;
        }
    }
    return {};
}

}  // namespace lockstep
