#include "job/cli/login.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kKeptUrl = "https://login1:8470";

// A configuration folder as login leaves it, and the command line in front of it.
class CliLoginForget : public testing::Test {
  protected:
    CliLoginForget() {
        options_.config = (folder_ / "config.toml").string();
        options_.forget = true;
        options_.login_url = kKeptUrl;
        write("config.toml", "# written by lockstep login\nurl = \"" + std::string{kKeptUrl} +
                                 "\"\ntoken-file = \"" + token_ + "\"\n");
        write("token", "lks_secret\n");
    }
    void write(const std::string& name, const std::string& text) {
        std::ofstream{folder_ / name} << text;
    }
    bool there(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
    Exit forget() {
        out_.str("");
        err_.str("");
        return log_in(options_, Dialog{}, out_, err_);
    }

    test::TemporaryFolder folder_;
    const std::string token_ = (folder_ / "token").string();
    Options options_;
    std::ostringstream out_, err_;
};

// Nothing but rm removed what login had written.
TEST_F(CliLoginForget, RemovesWhatLoginKeptAndSaysSo) {
    EXPECT_EQ(forget(), Exit::ok) << err_.str();
    EXPECT_EQ(out_.str(),
              "forgot https://login1:8470: removed " + options_.config + " and " + token_ +
                  "\nThe token itself works until it ends or is revoked: lockstep token "
                  "revoke ID\n");
    EXPECT_FALSE(there("config.toml"));
    EXPECT_FALSE(there("token"));
}

TEST_F(CliLoginForget, LeavesWhatIsKeptOfAnotherDaemon) {
    options_.login_url = "https://login2:8470";
    EXPECT_EQ(forget(), Exit::not_found);
    EXPECT_EQ(err_.str(),
              "error: login keeps nothing of https://login2:8470, but of https://login1:8470\n");
    EXPECT_TRUE(there("config.toml"));
    EXPECT_TRUE(there("token"));
}

TEST_F(CliLoginForget, LeavesATokenFileThatIsNotLogins) {
    write("mine", "lks_mine\n");
    write("config.toml", "# written by lockstep login\nurl = \"login1:8470\"\ntoken-file = \"" +
                             (folder_ / "mine").string() + "\"\n");
    options_.login_url = "login1:8470";
    EXPECT_EQ(forget(), Exit::ok) << err_.str();
    EXPECT_FALSE(there("config.toml"));
    EXPECT_TRUE(there("mine"));
    EXPECT_TRUE(there("token"));
}

TEST_F(CliLoginForget, LeavesSettingsThatSomebodyWrote) {
    write("config.toml", "# mine\nurl = \"" + std::string{kKeptUrl} + "\"\n");
    EXPECT_EQ(forget(), Exit::usage);
    EXPECT_THAT(err_.str(), HasSubstr("was not written by lockstep login"));
    EXPECT_TRUE(there("config.toml"));
    EXPECT_TRUE(there("token"));
}

}  // namespace
}  // namespace lockstep::cli
