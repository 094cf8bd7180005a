// size: the options of every verb, each once
#include "job/cli/options.hpp"

#include "job/cli/access.hpp"
#include "job/cli/arguments.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// A home folder of its own, and none of the variables of whoever runs the test.
class CliAccess : public testing::Test {
  protected:
    void SetUp() override {
        home_ = testing::TempDir() + "cli_home_" +
                testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(home_);
        std::filesystem::create_directories(home_ + "/.local/share/lockstep");
        std::filesystem::create_directories(home_ + "/.config/lockstep");
        ::setenv("HOME", home_.c_str(), 1);
        for (const char* name : {"XDG_DATA_HOME", "XDG_CONFIG_HOME", "LOCKSTEP_URL",
                                 "LOCKSTEP_TOKEN", "LOCKSTEP_DATA_DIR", "LOCKSTEP_FINGERPRINT"}) {
            ::unsetenv(name);
        }
    }
    void TearDown() override {
        ::unsetenv("LOCKSTEP_URL");
        ::unsetenv("LOCKSTEP_TOKEN");
        std::filesystem::remove_all(home_);
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(home_ + "/" + name) << text;
    }
    // What the arguments lead to.
    static Result<Access> access(const std::string& arguments) {
        Options options;
        CLI::App app;
        declare(app, options);
        app.parse(arguments + " jobs");
        return find_access(options);
    }
    std::string home_;
};

TEST_F(CliAccess, WithoutAnythingItIsThisMachine) {
    const auto got = access("");
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->url, "http://127.0.0.1:8470");
    EXPECT_EQ(got->token, "");
}

// A process that holds a data directory as lockstepd does; ended at the end of the scope.
class Holder {
  public:
    explicit Holder(const std::string& data) {
        std::array<int, 2> said{};
        EXPECT_EQ(::pipe(said.data()), 0);
        child_ = ::fork();
        if (child_ == 0) {
            struct flock whole = {};
            whole.l_type = F_WRLCK;
            const int lock = ::open((data + "/lock").c_str(), O_RDWR | O_CREAT, 0600);
            const char held = ::fcntl(lock, F_SETLK, &whole) == 0 ? 'y' : 'n';
            if (::write(said[1], &held, 1) == 1) {
                ::pause();
            }
            ::_exit(0);
        }
        char held = 'n';
        EXPECT_EQ(::read(said[0], &held, 1), 1);
        EXPECT_EQ(held, 'y');
        ::close(said[0]);
        ::close(said[1]);
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    ~Holder() {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }

  private:
    pid_t child_ = -1;
};

TEST_F(CliAccess, TheLocalDaemonsUrlAndTokenAreFound) {
    write(".local/share/lockstep/url", "http://127.0.0.1:9000\n");
    write(".local/share/lockstep/token", "abc\n");
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    EXPECT_EQ(access("")->url, "http://127.0.0.1:9000");
    EXPECT_EQ(access("")->token, "abc");
}

TEST_F(CliAccess, TheTokenOfADaemonThatIsGoneIsGivenToNobody) {
    write(".local/share/lockstep/url", "http://127.0.0.1:9000\n");
    write(".local/share/lockstep/token", "abc\n");
    const auto got = access("");
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Errc::unavailable);
    EXPECT_EQ(access("--url http://127.0.0.1:9000").error().code, Errc::unavailable);
}

// Only the data directory's own token was kept from whoever has its lockstepd's address by now.
TEST_F(CliAccess, NoTokenGoesToTheAddressThatALockstepdLeftBehind) {
    write(".local/share/lockstep/url", "http://127.0.0.1:9000\n");
    write("two", "second\n");
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    for (const std::string& how : {std::string{}, "--token-file " + home_ + "/two"}) {
        const auto got = access(how);
        ASSERT_FALSE(got.has_value()) << how;
        EXPECT_EQ(got.error().code, Errc::unavailable);
        EXPECT_THAT(got.error().message, HasSubstr("no lockstepd runs with the data directory"));
    }
    EXPECT_EQ(access("--url http://127.0.0.1:9000")->token, "mine") << "who listens is looked at";
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    EXPECT_EQ(access("")->token, "mine");
}

// A service's data directory and what login found are users whose socket may have the token.
TEST_F(CliAccess, TheUsersWhoMayListenAreKnown) {
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    write(".config/lockstep/config.toml", "url = \"http://127.0.0.1:9000\"\nlistener = 4711\n");
    EXPECT_THAT(access("")->listeners, testing::Contains(4711U));
    EXPECT_THAT(access("--url http://127.0.0.1:9001")->listeners,
                testing::Not(testing::Contains(4711U)))
        << "the settings are another daemon's";
    if (::getuid() == 0) {
        ASSERT_EQ(::chown((home_ + "/.local/share/lockstep").c_str(), 65'533, 0), 0);
        EXPECT_THAT(access("")->listeners, testing::Contains(65'533U));
    }
    write(".config/lockstep/config.toml", "listener = -1\n");
    EXPECT_THAT(access("").error().message, HasSubstr("not a user's number"));
}

TEST_F(CliAccess, ALocalTokenIsNotShownToAnotherHost) {
    write(".local/share/lockstep/token", "abc\n");
    write(".local/share/lockstep/url", "http://127.0.0.1:1\n");
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    EXPECT_EQ(access("--url http://127.0.0.1:1")->token, "abc");
    EXPECT_EQ(access("--url http://[::1]:1")->token, "abc");
    EXPECT_EQ(access("--url localhost:1")->token, "abc");
    EXPECT_EQ(access("--url http://cluster:8470")->token, "");
    EXPECT_EQ(access("--url http://127.0.0.1@cluster:1")->token, "");
    EXPECT_EQ(access("--url http://127.0.0.1.evil.example")->token, "");
}

// Whoever binds another port of the loopback got it from who named that one.
TEST_F(CliAccess, ALocalTokenIsForTheLocalDaemonsAddressAlone) {
    write(".local/share/lockstep/token", "abc\n");
    write(".local/share/lockstep/url", "http://127.0.0.1:9000\n");
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    const auto other = access("--url http://127.0.0.1:9001");
    ASSERT_FALSE(other.has_value());
    EXPECT_EQ(other.error().code, Errc::denied);
    EXPECT_THAT(other.error().message, HasSubstr("http://127.0.0.1:9000"));
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    EXPECT_EQ(access("--url http://127.0.0.1:9001")->token, "mine");
}

TEST_F(CliAccess, TheLocalDaemonIsAskedThroughItsUnixSocket) {
    write(".local/share/lockstep/url", "http://127.0.0.1:9000\n");
    write(".local/share/lockstep/token", "abc\n");
    write(".local/share/lockstep/lockstepd.sock", "");
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    const std::string socket = home_ + "/.local/share/lockstep/lockstepd.sock";
    EXPECT_EQ(access("")->socket, socket);
    EXPECT_EQ(access("--url http://localhost:9000")->socket, socket);
    EXPECT_EQ(access("")->url, "http://127.0.0.1:9000");
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    EXPECT_EQ(access("")->socket, socket) << "the address is that lockstepd's, whatever the token";
    EXPECT_EQ(access("--url http://127.0.0.1:9000")->socket, "")
        << "the token may be another daemon's";
}

// A tunnel to another daemon, whose certificate is pinned, was given it.
TEST_F(CliAccess, ALocalTokenIsForTheLocalDaemonsCertificateAlone) {
    const std::string local = "sha256:" + std::string(64, 'a');
    const std::string told = "sha256:" + std::string(64, 'b');
    write(".local/share/lockstep/fingerprint", local + "\n");
    write(".local/share/lockstep/url", "https://127.0.0.1:9000\n");
    write(".local/share/lockstep/token", "abc\n");
    write(".local/share/lockstep/lockstepd.sock", "");
    const Holder lockstepd{home_ + "/.local/share/lockstep"};
    const auto tunnel = access("--url https://127.0.0.1:9001 --fingerprint " + told);
    ASSERT_FALSE(tunnel.has_value());
    EXPECT_EQ(tunnel.error().code, Errc::denied);
    // At its own address the certificate is looked at before anything is sent.
    const auto same = access("--url https://127.0.0.1:9000 --fingerprint " + told);
    EXPECT_EQ(same->token, "abc");
    EXPECT_EQ(same->fingerprint, told);
    EXPECT_EQ(same->socket, "");
    EXPECT_EQ(access("")->fingerprint, local);
}

TEST_F(CliAccess, TheFingerprintIsTheVariablesOrTheLocalDaemons) {
    const std::string local = "sha256:" + std::string(64, 'a');
    const std::string told = "sha256:" + std::string(64, 'b');
    write(".local/share/lockstep/fingerprint", local + "\n");
    write(".local/share/lockstep/url", "https://10.0.0.1:9000\n");
    write(".local/share/lockstep/token", "abc\n");
    EXPECT_EQ(access("")->fingerprint, local);
    EXPECT_EQ(access("")->fingerprint_file, home_ + "/.local/share/lockstep/fingerprint");
    EXPECT_EQ(access("")->token, "abc");
    EXPECT_EQ(access("--url https://127.0.0.1:1")->fingerprint, local);
    EXPECT_EQ(access("--url http://127.0.0.1:1").error().code, Errc::unavailable);
    EXPECT_EQ(access("--url https://cluster:1")->fingerprint, "");
    EXPECT_EQ(access("--url https://cluster:1 --fingerprint " + told)->fingerprint, told);
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    EXPECT_EQ(access("--url https://127.0.0.1:1 --fingerprint " + told)->fingerprint_file, "");
    ::unsetenv("LOCKSTEP_TOKEN");
    ::setenv("LOCKSTEP_FINGERPRINT", told.c_str(), 1);
    EXPECT_EQ(access("--url https://cluster:1")->fingerprint, told);
    ::setenv("LOCKSTEP_FINGERPRINT", "sha256:short", 1);
    EXPECT_THAT(access("--url https://cluster:1").error().message, HasSubstr("not a fingerprint"));
    ::unsetenv("LOCKSTEP_FINGERPRINT");
}

TEST_F(CliAccess, WhatLoginKeptIsForThatDaemonAlone) {
    const std::string kept = "sha256:" + std::string(64, 'c');
    write("token", "secret\n");
    write(".config/lockstep/config.toml", "url = \"https://cluster:8470\"\ntoken-file = \"" +
                                              home_ + "/token\"\nfingerprint = \"" + kept + "\"\n");
    EXPECT_EQ(access("")->url, "https://cluster:8470");
    for (const char* same : {"", "--url https://cluster:8470", "--url https://cluster/"}) {
        EXPECT_EQ(access(same)->token, "secret") << same;
        EXPECT_EQ(access(same)->fingerprint, kept) << same;
    }
    for (const char* other : {"--url https://cluster:1", "--url http://cluster:8470",
                              "--url https://other:8470", "--url http://127.0.0.1:8470"}) {
        EXPECT_EQ(access(other)->token, "") << other;
        EXPECT_EQ(access(other)->fingerprint, "") << other;
    }
}

// The token was sent in clear, as to http://.
TEST_F(CliAccess, AnAddressWithoutASchemeIsHttpsUnlessItIsThisMachines) {
    ::setenv("LOCKSTEP_TOKEN", "mine", 1);
    EXPECT_EQ(access("--url login1:8470")->url, "https://login1:8470");
    EXPECT_EQ(access("--url login1/lockstep")->url, "https://login1/lockstep");
    EXPECT_EQ(access("--url 127.0.0.1@login1")->url, "https://127.0.0.1@login1");
    EXPECT_EQ(access("--url localhost:8470")->url, "http://localhost:8470");
    EXPECT_EQ(access("--url [::1]:8470")->url, "http://[::1]:8470");
    EXPECT_EQ(access("--url http://login1:8470")->url, "http://login1:8470") << "as it says";
    const std::string kept = "sha256:" + std::string(64, 'c');
    write(".config/lockstep/config.toml",
          "url = \"login1:8470\"\nfingerprint = \"" + kept + "\"\n");
    EXPECT_EQ(access("")->url, "https://login1:8470");
    EXPECT_EQ(access("")->fingerprint, kept);
    EXPECT_EQ(access("--url https://login1:8470")->fingerprint, kept);
}

TEST_F(CliAccess, FlagBeatsVariableBeatsFile) {
    write(".config/lockstep/config.toml", "url = \"http://file:1\"\n");
    EXPECT_EQ(access("")->url, "http://file:1");
    ::setenv("LOCKSTEP_URL", "http://variable:1", 1);
    EXPECT_EQ(access("")->url, "http://variable:1");
    EXPECT_EQ(access("--url http://flag:1")->url, "http://flag:1");
}

TEST_F(CliAccess, TokenFileBeatsVariableBeatsConfiguration) {
    write("one", "first\n");
    write("two", "second\n");
    write(".config/lockstep/config.toml", "token-file = \"" + home_ + "/one\"\n");
    EXPECT_EQ(access("")->token, "first");
    ::setenv("LOCKSTEP_TOKEN", "third", 1);
    EXPECT_EQ(access("")->token, "third");
    EXPECT_EQ(access("--token-file " + home_ + "/two")->token, "second");
}

// The file's token was "", and the next place was looked at: somebody else's rights.
TEST_F(CliAccess, AnEmptyTokenFileIsNotReplacedByAnotherToken) {
    write("none", "\n");
    write("two", "second\n");
    write(".config/lockstep/config.toml", "token-file = \"" + home_ + "/two\"\n");
    const auto got = access("--token-file " + home_ + "/none");
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().message, "token file " + home_ + "/none is empty");
}

// A folder ended as if no lockstepd had answered, a missing file as if there were no such job.
TEST_F(CliAccess, ATokenFileThatIsNoneIsAWrongArgument) {
    const auto folder = access("--token-file " + home_);
    ASSERT_FALSE(folder.has_value());
    EXPECT_EQ(folder.error().code, Errc::invalid);
    EXPECT_EQ(folder.error().message, "token file " + home_ + " is a folder");
    const auto missing = access("--token-file " + home_ + "/none");
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, Errc::invalid);
}

TEST_F(CliAccess, ATokenSaysWhereItIsFrom) {
    EXPECT_EQ(access("")->token_from, "");
    write("two", "second\n");
    write(".config/lockstep/config.toml", "token-file = \"" + home_ + "/two\"\n");
    EXPECT_EQ(access("")->token_from,
              home_ + "/two, as " + home_ + "/.config/lockstep/config.toml says");
    ::setenv("LOCKSTEP_TOKEN", "third", 1);
    EXPECT_EQ(access("")->token_from, "LOCKSTEP_TOKEN");
    EXPECT_EQ(access("--token-file " + home_ + "/two")->token_from,
              "--token-file, " + home_ + "/two");
}

TEST_F(CliAccess, AnUnknownSettingOrAMissingFileIsAnError) {
    write(".config/lockstep/config.toml", "ulr = \"http://file:1\"\n");
    EXPECT_THAT(access("").error().message, HasSubstr("unknown setting ulr"));
    EXPECT_EQ(access("--config " + home_ + "/none").error().message,
              "settings file " + home_ + "/none is not there");
    EXPECT_EQ(access("--config " + home_).error().message,
              "settings file " + home_ + " is a folder")
        << "it was taken for an empty one";
    write(".config/lockstep/config.toml", "");
    EXPECT_FALSE(access("--token-file " + home_ + "/none").has_value());
}

TEST(CliOptions, GlobalOptionsWorkAfterTheVerbToo) {
    Options options;
    CLI::App app;
    declare(app, options);
    app.parse("show ls-01JCXW --json --url http://x:1");
    EXPECT_TRUE(options.json);
    EXPECT_EQ(options.url, "http://x:1");
    EXPECT_EQ(options.id, "ls-01JCXW");
}

TEST(CliOptions, StandardInputIsADash) {
    Options options;
    CLI::App app;
    declare(app, options);
    app.parse("submit - --follow");
    EXPECT_EQ(options.file, "-");
    EXPECT_TRUE(options.follow);
}

TEST(CliOptions, LogsAreOfTheAttemptThatIsNamed) {
    Options options;
    CLI::App app;
    declare(app, options);
    app.parse("logs ls-01JCXW --rank 0-3 --attempt 2");
    EXPECT_EQ(options.log_attempt, 2);
}

TEST(CliOptions, WhatMakesNoSenseIsRefused) {
    for (const char* line :
         {"", "nonsense", "submit", "submit a.json --wait --follow", "jobs --state sleeping",
          "jobs --limit 0", "series ls-01JCXW", "logs ls-01JCXW --tail -3",
          "logs ls-01JCXW --attempt 0", "logs ls-01JCXW --attempt one",
          "logs ls-01JCXW --attempt 1 --failed", "completion tcsh", "show a b"}) {
        Options options;
        CLI::App app;
        declare(app, options);
        EXPECT_THROW(app.parse(line), CLI::ParseError) << line;
    }
}

// What the parser says of the words; "" if it takes them.
std::string complaint(const std::vector<std::string>& words) {
    Options options;
    CLI::App app;
    declare(app, options);
    auto prepared = prepared_arguments(app, words);
    std::reverse(prepared.begin(), prepared.end());
    try {
        app.parse(prepared);
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    return "";
}

// nan was taken and the view asked without a pause.
TEST(CliOptions, NumbersOutOfTheirLimitsAreRefusedWithThem) {
    for (const char* value : {"nan", "inf", "-1", "0", "0.1", "1e9", "x", "1s"}) {
        EXPECT_EQ(complaint({"top", "ls-01", "--interval", value}),
                  std::string("--interval: must be a number from 0.2 to 3600, not ") + value);
    }
    EXPECT_EQ(complaint({"top", "ls-01", "--interval", "0.5"}), "");
    for (const char* value : {"0", "-1", "1.5", "nan", "9223372036854775808", "0x10"}) {
        EXPECT_EQ(complaint({"jobs", "--limit", value}),
                  std::string("--limit: must be a whole number from 1 to 1000000, not ") + value);
    }
    EXPECT_EQ(complaint({"run", "-N", "0", "true"}),
              "--nodes: must be a whole number from 1 to 16384, not 0");
}

TEST(CliOptions, AWrongWordIsSaidWithTheNearestRightOne) {
    const std::string text = complaint({"jobs", "--state", "runing"});
    EXPECT_THAT(text, HasSubstr("--state: runing is none of accepted, "));
    EXPECT_THAT(text, HasSubstr("; did you mean running?"));
    EXPECT_EQ(complaint({"token", "crate", "x"}),
              "ACTION: crate is none of create, list, revoke; did you mean create?");
}

// `rm --older-than 1d --name "$NAME"` without the variable named every job, and `--token-file=`
// took the verb behind it for the file.
TEST(CliOptions, AnEmptyValueIsNotAMissingOne) {
    EXPECT_EQ(complaint({"rm", "--older-than", "1d", "--name", ""}), "--name: must not be empty");
    EXPECT_EQ(complaint({"rm", "--older-than", "1d", "--name="}), "--name: must not be empty");
    EXPECT_EQ(complaint({"--token-file=", "jobs"}), "--token-file: must not be empty");
    EXPECT_EQ(complaint({"jobs", "--token-file", ""}), "--token-file: must not be empty");
    EXPECT_EQ(complaint({"cancel", ""}), "ID: must not be empty");
    EXPECT_EQ(complaint({"run", "--setup=", "--", "echo", "", "--x="}), "");
}

TEST(CliOptions, AnUnknownOptionIsSaidWithItsVerbAndTheNearest) {
    Options options;
    CLI::App app;
    declare(app, options);
    EXPECT_EQ(unknown_option(app, {"jobs", "--stat", "running"}),
              "unknown option --stat of lockstep jobs; did you mean --state?");
    EXPECT_EQ(unknown_option(app, {"logs", "last", "--tial=3"}),
              "unknown option --tial of lockstep logs; did you mean --tail?");
    EXPECT_EQ(unknown_option(app, {"jobs", "-z"}), "unknown option -z of lockstep jobs");
    EXPECT_EQ(unknown_option(app, {"logs", "last", "--tail", "-3", "--jsno"}),
              "unknown option --jsno of lockstep logs; did you mean --json?");
    EXPECT_EQ(unknown_option(app, {"run", "-N4", "-fG", "2", "--", "x", "--unknown"}), "");
    EXPECT_EQ(unknown_option(app, {"--url", "--odd", "jobs", "-n5"}), "");
    EXPECT_EQ(unknown_option(app, {"nonsense", "--odd"}), "");
}

TEST(CliOptions, WhatIsNoUtf8IsRefused) {
    EXPECT_EQ(not_utf8({"run", "日本", "é"}), "");
    EXPECT_EQ(not_utf8({"run", "a\xff"}), "argument 2 is not UTF-8: a\xff");
}

// They were ignored beside an id: `rm ID --state failed` removed a job that had succeeded.
TEST(CliOptions, FiltersOfRmNeedTheAgeTheyNarrow) {
    for (const char* line : {"rm ls-01 --state failed", "rm ls-01 --name other", "rm --name x"}) {
        Options options;
        CLI::App app;
        declare(app, options);
        EXPECT_THROW(app.parse(line), CLI::ParseError) << line;
    }
    Options options;
    CLI::App app;
    declare(app, options);
    app.parse("rm --older-than 30d --state failed --name other");
    EXPECT_EQ(options.state, "failed");
}

}  // namespace
}  // namespace lockstep::cli
