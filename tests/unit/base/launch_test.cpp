#include "job/base/launch.hpp"

#include "job/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace lockstep {
namespace {

class LaunchTest : public testing::Test {
  protected:
    // What a shell's words print.
    std::string said(LaunchPlan plan, const std::string& words) {
        plan.program = "/bin/sh";
        plan.argv = {"sh", "-c", words};
        plan.log = folder_ / "log";
        pid_t pid = -1;
        EXPECT_EQ(launch(plan, pid), 0);
        EXPECT_TRUE(open_pidfd(pid));
        int status = -1;
        EXPECT_EQ(::waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, 0);
        const std::string text = read_file(folder_ / "log", 1U << 20U).value_or("nothing");
        std::filesystem::remove(folder_ / "log");
        return text;
    }
    const test::TemporaryFolder folder_;
};

TEST_F(LaunchTest, HasTheEnvironmentTheFolderAndTheGroupThatWereAsked) {
    LaunchPlan plan;
    plan.environment = {{"ONLY=this one"}};
    plan.directory = "/usr";
    EXPECT_EQ(said(plan, "echo $ONLY; echo ${HOME-none}; pwd; cat; echo no >&2"),
              "this one\nnone\n/usr\nno\n");
    plan.environment.reset();
    ::setenv("LAUNCH_TEST", "passed on", 1);
    EXPECT_EQ(said(plan, "echo $LAUNCH_TEST"), "passed on\n");
    const std::string group =
        "read -r line < /proc/self/stat; set -- $line; echo $(($5 == $$)) $(($6 == $$))";
    EXPECT_EQ(said(plan, group), "0 0\n");
    plan.group = ProcessGroup::own;
    EXPECT_EQ(said(plan, group), "1 0\n");
    plan.group = ProcessGroup::session;
    EXPECT_EQ(said(plan, group), "1 1\n");
}

TEST_F(LaunchTest, HasNoDescriptorAndNoSignalOfOurs) {
    int open_here[2] = {-1, -1};
    ASSERT_EQ(::pipe(open_here), 0);  // not closed by exec
    const int handed = ::fcntl(open_here[1], F_DUPFD, 10);
    sigset_t blocked;
    sigset_t before;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const auto old = ::signal(SIGHUP, SIG_IGN);
    LaunchPlan plan;
    plan.handed = {handed};
    const int not_handed = ::fcntl(open_here[0], F_DUPFD, 20);
    const std::string ours = std::to_string(not_handed);
    EXPECT_EQ(said(plan, "echo x >&3; [ -e /proc/$$/fd/" + ours + " ] || echo closed"), "closed\n");
    EXPECT_EQ(said(plan, "grep -E '^Sig(Blk|Ign)' /proc/self/status"),
              "SigBlk:\t0000000000000000\nSigIgn:\t0000000180000000\n")
        << "posix_spawn(3) leaves glibc's own two ignored";
    ::signal(SIGHUP, old);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    char byte = 0;
    EXPECT_EQ(::read(open_here[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'x');
    for (const int fd : {open_here[0], open_here[1], handed, not_handed}) {
        ::close(fd);
    }
}

TEST_F(LaunchTest, SaysWhatIsWrong) {
    LaunchPlan plan;
    plan.argv = {"x"};
    plan.log = folder_ / "log";
    pid_t pid = -1;
    plan.program = "no-such-program-of-any-name";
    EXPECT_EQ(launch(plan, pid), ENOENT);
    plan.program = "true";  // looked for on PATH
    EXPECT_EQ(launch(plan, pid), 0);
    ::waitpid(pid, nullptr, 0);
    std::filesystem::create_symlink(folder_ / "log", folder_ / "link");
    plan.log = folder_ / "link";
    EXPECT_EQ(launch(plan, pid), ELOOP) << "somebody may have put it there";
    plan.log_may_be_link = true;
    EXPECT_EQ(launch(plan, pid), 0);
    ::waitpid(pid, nullptr, 0);
    EXPECT_FALSE(open_pidfd(pid));
}

}  // namespace
}  // namespace lockstep
