// Paths that cannot be looked at, and a lockstepd that is not there.
#include "job/cli/access.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/daemon_start.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/cli/fake_daemon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// Variables of this process, as they were when the test ends.
class CliPaths : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* name : {"HOME", "PATH", "XDG_DATA_HOME", "XDG_CONFIG_HOME"}) {
            const char* value = std::getenv(name);
            before_.emplace_back(name, value == nullptr ? std::nullopt : std::optional{value});
        }
        ::unsetenv("XDG_DATA_HOME");
        ::unsetenv("XDG_CONFIG_HOME");
        ::setenv("HOME", folder_.path().c_str(), 1);
    }
    void TearDown() override {
        for (const auto& [name, value] : before_) {
            value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
        }
    }
    test::TemporaryFolder folder_;
    // No file can have such a name, whoever asks: root may look into every folder.
    const std::string too_long_ = std::string(300, 'x');

  private:
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

// The program was aborted.
TEST_F(CliPaths, AHomeThatCannotBeLookedAtHasNoSettings) {
    ::setenv("HOME", ("/" + too_long_).c_str(), 1);
    const auto settings = read_config({});
    ASSERT_TRUE(settings.has_value()) << settings.error().message;
    EXPECT_EQ(settings->url, "");
    EXPECT_TRUE(find_access({}).has_value());
}

TEST_F(CliPaths, SettingsThatAreNamedAndCannotBeLookedAtAreAnErrorThatNamesThem) {
    Options options;
    options.config = "/" + too_long_;
    const auto settings = read_config(options);
    ASSERT_FALSE(settings.has_value());
    EXPECT_EQ(settings.error().code, Errc::invalid);
    EXPECT_THAT(settings.error().message, HasSubstr(too_long_ + ": File name too long"));
}

TEST_F(CliPaths, AScriptsNameThatNoFileCanHaveIsAJobsName) {
    FakeDaemon daemon;
    Cli run(daemon);
    run.options.id = too_long_;
    EXPECT_EQ(run.verb("script"), Exit::usage);
    EXPECT_THAT(run.err.str(), HasSubstr("a job is named by its id"));
}

// It was as if there were no such job.
TEST_F(CliPaths, WithoutAProgramToStartLockstepdIsUnreachable) {
    ::setenv("PATH", folder_.path().c_str(), 1);
    std::ostringstream err;
    const Status started = ensure_daemon({}, err);
    ASSERT_FALSE(started.has_value());
    EXPECT_THAT(started.error().message, HasSubstr("there is none beside this program"));
    EXPECT_EQ(exit_code(started.error().code), Exit::unreachable);
}

}  // namespace
}  // namespace lockstep::cli
