// What an agent says where it cannot begin because there is no room: which file system that is.
#include "job/agent/claim.hpp"
#include "job/agent/ranks/socket_directory.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

using testing::HasSubstr;

const std::string kNoMount = "not permitted";

// What `act` says where nothing can be created in `folder`. Another process does it: the mount is
// its own, and goes with it.
std::string said_on_full(const std::string& folder, const std::function<std::string()>& act) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) {
        return "no pipe: " + std::generic_category().message(errno);
    }
    const pid_t child = ::fork();
    if (child == 0) {
        const bool full = ::unshare(CLONE_NEWNS) == 0 &&
                          ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                          ::mount("full", folder.c_str(), "tmpfs", 0, "nr_inodes=1") == 0;
        const std::string said =
            full ? act()
                 : (errno == EPERM ? kNoMount
                                   : "no mount: " + std::generic_category().message(errno));
        const auto put = ::write(ends[1], said.data(), said.size());
        ::_exit(put == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    std::string out;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = ::read(ends[0], piece.data(), piece.size())) > 0;) {
        out.append(piece.data(), static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return out;
}

TEST(FullFileSystem, IsNamedWhereANodeCannotBeClaimed) {
    const test::TemporaryFolder folder;
    const std::string said = said_on_full(folder.path().string(), [&] {
        wire::ClaimFile content;
        content.incarnation = "one";
        const auto claim = Claim::take(folder.path(), 0, content);
        return claim ? std::string{"claimed"} : claim.error().message;
    });
    if (said == kNoMount) {
        GTEST_SKIP() << "it may not mount (CAP_SYS_ADMIN)";
    }
    const std::string here = std::filesystem::canonical(folder.path()).string();
    EXPECT_THAT(said, HasSubstr("No space left on device (file system " + here + ", tmpfs)"));
}

TEST(FullFileSystem, IsNamedWhereThereIsNoFolderForTheSockets) {
    const test::TemporaryFolder folder;
    const std::string said = said_on_full(folder.path().string(), [&] {
        const auto made = SocketDirectory::create({folder.path().string()});
        return made ? std::string{"made"} : made.error().message;
    });
    if (said == kNoMount) {
        GTEST_SKIP() << "it may not mount (CAP_SYS_ADMIN)";
    }
    const std::string where = "No space left on device (file system " +
                              std::filesystem::canonical(folder.path()).string() + ", tmpfs)";
    const auto first = said.find(where);
    ASSERT_NE(first, std::string::npos) << said;
    EXPECT_NE(said.find(where, first + 1), std::string::npos) << "of the other name, too: " << said;
}

}  // namespace
}  // namespace lockstep
