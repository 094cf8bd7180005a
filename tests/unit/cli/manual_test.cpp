#include "job/cli/manual.hpp"

#include "job/cli/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class Manual : public testing::Test {
  protected:
    void SetUp() override {
        declare(app_, options_);
        folder_ = testing::TempDir() + "manual_" +
                  testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string written(const std::string& name, const std::string& text) const {
        const std::string path = folder_ + "/" + name;
        std::ofstream(path) << text;
        return path;
    }
    // Output of a shell command, with its exit status at the end as "=0".
    static std::string run(const std::string& command) {
        std::FILE* pipe = ::popen((command + " 2>&1; echo \"=$?\"").c_str(), "r");
        std::string out;
        for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
            out += static_cast<char>(c);
        }
        ::pclose(pipe);
        return out;
    }
    static bool installed(const std::string& program) {
        return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
    }

    Options options_;
    CLI::App app_;
    std::string folder_;
};

std::string roff_of(const std::string& name) {
    std::string out;
    for (const char c : name) {
        out += c == '-' ? "\\-" : std::string(1, c);
    }
    return out;
}

TEST_F(Manual, EveryVerbAndOptionIsOnThePageAndInEveryCompletion) {
    const std::string page = man_page(app_, manual_text(), "1.2.3", "2026-11-21");
    for (const Shell shell : {Shell::bash, Shell::zsh, Shell::fish}) {
        const std::string script = completion(app_, shell, "lockstep jobs -q");
        std::vector<const CLI::App*> apps = declared_verbs(app_);
        EXPECT_GE(apps.size(), 12U);
        for (const CLI::App* verb : apps) {
            EXPECT_THAT(script, HasSubstr(verb->get_name()));
            EXPECT_THAT(page, HasSubstr(".SS " + roff_of(verb->get_name()) + "\n"));
        }
        apps.push_back(&app_);
        for (const CLI::App* app : apps) {
            for (const Declared& option : declared_options(*app)) {
                for (const std::string& name : option.names) {
                    if (option.positional) {
                        continue;
                    }
                    EXPECT_THAT(page, HasSubstr("\\fB" + roff_of(name) + "\\fR"));
                    const std::string bare = name.substr(name.find_first_not_of('-'));
                    EXPECT_THAT(script, HasSubstr(shell == Shell::fish ? " " + bare : name));
                }
            }
        }
    }
}

TEST_F(Manual, HiddenVerbsStayHidden) {
    const std::string page = man_page(app_, manual_text(), "1", "2026-11-21");
    EXPECT_EQ(page.find(".SS manual"), std::string::npos);
    EXPECT_EQ(app_.help().find("Print the man page"), std::string::npos);
}

TEST_F(Manual, ThePageHasNothingForMandocToComplainAbout) {
    if (!installed("mandoc")) {
        GTEST_SKIP() << "mandoc is not installed";
    }
    const std::string path =
        written("lockstep.1", man_page(app_, manual_text(), "1.2.3", "2026-11-21"));
    EXPECT_EQ(run("mandoc -Tlint -Wwarning " + path), "=0\n");
}

TEST_F(Manual, BashCompletesVerbsOptionsWordsAndIds) {
    const std::string path = written("completion", completion(app_, Shell::bash, "echo ls-1 ls-2"));
    EXPECT_EQ(run("bash -n " + path), "=0\n");
    const auto complete = [&](const std::string& words) {
        return run(
            "bash -c 'source " + path + "; COMP_WORDS=(" + words +
            "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lockstep; echo \"${COMPREPLY[@]}\"'");
    };
    EXPECT_EQ(complete("lockstep ca"), "cancel\n=0\n");
    EXPECT_EQ(complete("lockstep submit --fol"), "--follow\n=0\n");
    EXPECT_EQ(complete("lockstep jobs --state ca"), "cancelled\n=0\n");
    EXPECT_EQ(complete("lockstep --url http://x show \"\""), "ls-1 ls-2\n=0\n");
    EXPECT_EQ(complete("lockstep completion f"), "fish\n=0\n");
}

TEST_F(Manual, ZshAndFishReadTheirScripts) {
    const std::string zsh = written("_lockstep", completion(app_, Shell::zsh, "lockstep jobs -q"));
    const std::string fish =
        written("lockstep.fish", completion(app_, Shell::fish, "lockstep jobs -q"));
    if (!installed("zsh") && !installed("fish")) {
        GTEST_SKIP() << "neither zsh nor fish is installed";
    }
    if (installed("zsh")) {
        EXPECT_EQ(run("zsh -n " + zsh), "=0\n");
    }
    if (installed("fish")) {
        EXPECT_EQ(run("fish -n " + fish), "=0\n");
    }
}

TEST_F(Manual, DescriptionsWithQuotesAndBracketsAreEscaped) {
    CLI::App app;
    app.name("tool");
    bool odd = false;
    app.add_flag("--odd", odd, "It's [odd]: $(rm) `x` \\ .TH");
    const std::string zsh = completion(app, Shell::zsh, "");
    EXPECT_THAT(zsh, HasSubstr(R"('--odd[It'\''s \[odd\]\: $(rm) `x` \\ .TH]')"));
    EXPECT_THAT(completion(app, Shell::fish, ""),
                HasSubstr(R"(-d 'It\'s [odd]: $(rm) `x` \\ .TH')"));
    EXPECT_THAT(man_page(app, {}, "1", "2026-11-21"), HasSubstr("It's [odd]: $(rm) `x` \\e .TH"));
    const std::string bash = written("b", completion(app, Shell::bash, ""));
    EXPECT_EQ(run("bash -n " + bash), "=0\n");
}

}  // namespace
}  // namespace lockstep::cli
