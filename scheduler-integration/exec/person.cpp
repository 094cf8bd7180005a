#include "scheduler-integration/exec/person.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lockstep::exec {
namespace {

std::string change_ids(uid_t uid, gid_t gid) {
    if (uid == 0 || gid == 0) {
        return "will not become root";
    }
    gid_t gids[3] = {0, 0, 0};
    if (::setresgid(gid, gid, gid) != 0 || ::getresgid(&gids[0], &gids[1], &gids[2]) != 0 ||
        gids[0] != gid || gids[1] != gid || gids[2] != gid) {
        return "setresgid";
    }
    uid_t uids[3] = {0, 0, 0};
    if (::setresuid(uid, uid, uid) != 0 || ::getresuid(&uids[0], &uids[1], &uids[2]) != 0 ||
        uids[0] != uid || uids[1] != uid || uids[2] != uid) {
        return "setresuid";
    }
    // Not what the calls say, but what can be done.
    if (::setresuid(0, 0, 0) == 0 || ::setuid(0) == 0 || ::seteuid(0) == 0 ||
        ::setresgid(0, 0, 0) == 0 || ::setegid(0) == 0) {
        return "root can be had back";
    }
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct caps[2] = {};
    if (::syscall(SYS_capget, &head, caps) != 0 || (caps[0].effective | caps[1].effective) != 0 ||
        (caps[0].permitted | caps[1].permitted) != 0) {
        return "capabilities are left";
    }
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
        return "no_new_privs";
    }
    return "";
}

std::vector<gid_t> sorted(std::vector<gid_t> groups) {
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups;
}

// Whether the process has exactly these.
bool has_groups(const std::vector<gid_t>& wanted) {
    const int count = ::getgroups(0, nullptr);
    std::vector<gid_t> groups(count > 0 ? static_cast<std::size_t>(count) : 0);
    return count >= 0 && ::getgroups(count, groups.data()) == count &&
           sorted(groups) == sorted(wanted);
}

}  // namespace

bool find_person(uid_t uid, Person& out) {
    const passwd* entry = ::getpwuid(uid);
    if (entry == nullptr || entry->pw_uid != uid) {
        return false;
    }
    out = {uid, entry->pw_gid, entry->pw_name, entry->pw_dir};
    const passwd* back = ::getpwnam(out.name.c_str());
    return back != nullptr && back->pw_uid == uid;
}

std::string become(const Person& person) {
    int count = 64;
    std::vector<gid_t> groups(64);
    if (::getgrouplist(person.name.c_str(), person.gid, groups.data(), &count) < 0) {
        groups.resize(static_cast<std::size_t>(count));
        if (::getgrouplist(person.name.c_str(), person.gid, groups.data(), &count) < 0) {
            return "getgrouplist";
        }
    }
    groups.resize(static_cast<std::size_t>(count));
    if (std::find(groups.begin(), groups.end(), gid_t{0}) != groups.end()) {
        return "a member of root's group";
    }
    if (::setgroups(groups.size(), groups.data()) != 0 || !has_groups(groups)) {
        return "setgroups";
    }
    return change_ids(person.uid, person.gid);
}

std::string become_nobody(uid_t uid, gid_t gid) {
    if (::setgroups(0, nullptr) != 0 || !has_groups({})) {
        return "setgroups";
    }
    return change_ids(uid, gid);
}

}  // namespace lockstep::exec
