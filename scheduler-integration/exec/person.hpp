// Becoming another user, for good. Every change of an identity is read back, because the calls have
// been known to fail unnoticed (CVE-2012-3490), and going on as root would be the worst of ends.
#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep::exec {

struct Person {
    uid_t uid = 0;
    gid_t gid = 0;
    std::string name;
    std::string home;
};

// False: nobody has this number, or the name leads to another one.
bool find_person(uid_t uid, Person& out);
// Groups, group, user; then whether all of it is so and cannot be undone. "", or what is wrong: the
// process must end then, it may be anybody.
std::string become(const Person& person);
// The same without the groups of anybody, for a process that only computes.
std::string become_nobody(uid_t uid, gid_t gid);

}  // namespace lockstep::exec
