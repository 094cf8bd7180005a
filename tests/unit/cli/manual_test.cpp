#include "job/cli/manual.hpp"

#include "job/cli/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
    CLI::App* manual = app_.get_subcommand("manual");
    EXPECT_THAT(app_.help(), Not(HasSubstr(manual->get_description())));
    manual->group("Verbs");  // what the help would say of it
    EXPECT_THAT(app_.help(), HasSubstr(manual->get_description()));
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

// It offered lockstep's own options there, and no file anywhere in run's command.
TEST_F(Manual, BashCompletesFilesWhereRunsCommandHasBegunAndItsOptionsBefore) {
    const std::string path = written("completion", completion(app_, Shell::bash, "echo ls-1"));
    const auto complete = [&](const std::string& words) {
        return run("bash -c 'source " + path +
                   "; compopt() { echo \"compopt $*\"; }; COMP_WORDS=(" + words +
                   "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lockstep; "
                   "echo \"${COMPREPLY[@]}\"'");
    };
    for (const char* words :
         {"lockstep run \"\"", "lockstep run tr", "lockstep run -- \"\"",
          "lockstep run -- python --no", "lockstep run python --no",
          "lockstep run -N 2 -- python --state ca", "lockstep --url x run --env A = B python --no",
          "lockstep run --env A = -- --no"}) {
        EXPECT_EQ(complete(words), "compopt -o default\n\n=0\n") << words;
    }
    for (const char* words :
         {"lockstep run --no-e", "lockstep run -N 2 --no-e", "lockstep run --env A = B --no-e",
          "lockstep run --time = 1 : 00 --no-e", "lockstep --url x run -t 4 : 00 : 00 --no-e"}) {
        EXPECT_EQ(complete(words), "--no-environment\n=0\n") << words;
    }
    EXPECT_EQ(complete("lockstep run --launch ta"), "task\n=0\n");
}

TEST_F(Manual, FishCompletesFilesWhereRunsCommandHasBegunAndItsOptionsBefore) {
    if (!installed("fish")) {
        GTEST_SKIP() << "fish is not installed";
    }
    const std::string path = written("lockstep.fish", completion(app_, Shell::fish, "echo ls-1"));
    written("train.py", "");
    const auto complete = [&](const std::string& line) {
        return run("cd " + folder_ + " && HOME=" + folder_ + " fish -c \"source " + path +
                   "; complete -C '" + line + "'\"");
    };
    for (const char* line : {"lockstep run tra", "lockstep run -- tra",
                             "lockstep run -- python tra", "lockstep run -N 2 python tra"}) {
        EXPECT_EQ(complete(line), "train.py\n=0\n") << line;
    }
    for (const char* line :
         {"lockstep run -- python --no-e", "lockstep run python --no-e",
          "lockstep run python --fingerp", "lockstep run -- python jobs --sta"}) {
        EXPECT_EQ(complete(line), "=0\n") << line;
    }
    EXPECT_THAT(complete("lockstep run -N 2 --no-e"), HasSubstr("--no-environment"));
    EXPECT_THAT(complete("lockstep jobs --sta"), HasSubstr("--state"));
}

TEST_F(Manual, ZshGivesRunsCommandToItsProgramsCompletion) {
    const std::string zsh = completion(app_, Shell::zsh, "");
    EXPECT_THAT(zsh, HasSubstr("run) _arguments -S -A '-*'"));
    EXPECT_THAT(zsh, HasSubstr("'(-):COMMAND:_command_names -e'"));
    EXPECT_THAT(zsh, HasSubstr("'*::COMMAND:_normal'"));
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

std::size_t longest_line(const std::string& text) {
    std::istringstream lines(text);
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);) {
        most = std::max(most, static_cast<std::size_t>(
                                  std::count_if(line.begin(), line.end(), [](unsigned char c) {
                                      return (c & 0xC0U) != 0x80U;  // characters of UTF-8
                                  })));
    }
    return most;
}

// Verbs were one long line each, up to 200 columns.
TEST_F(Manual, HelpFitsIntoItsColumnsAndListsEveryVerbAndOption) {
    for (const std::size_t columns : {80U, 120U}) {
        dress_help(app_, columns);
        std::vector<const CLI::App*> apps = declared_verbs(app_);
        apps.push_back(&app_);
        for (const CLI::App* app : apps) {
            const std::string help = app->help();
            EXPECT_LE(longest_line(help), columns) << app->get_name();
            for (const Declared& option : declared_options(*app)) {
                for (const std::string& name : option.names) {
                    EXPECT_THAT(help, HasSubstr(name)) << app->get_name();
                }
            }
        }
        for (const CLI::App* verb : declared_verbs(app_)) {
            EXPECT_THAT(app_.help(), HasSubstr("\n  " + verb->get_name() + " "));
        }
    }
}

TEST_F(Manual, HelpHasTheVerbsInGroups) {
    const std::string help = app_.help();
    std::size_t last = 0;
    for (const char* group : {"Start", "Watch", "Act", "Cluster", "Access"}) {
        const std::size_t at = help.find(std::string("\n") + group + ":\n");
        ASSERT_NE(at, std::string::npos) << group;
        EXPECT_GT(at, last);
        last = at;
    }
    for (const CLI::App* verb : declared_verbs(app_)) {
        EXPECT_NE(verb->get_group(), "Subcommands") << verb->get_name();
    }
}

TEST(Help, AnOptionHasItsMeaningDefaultAndVariable) {
    CLI::App app;
    std::string tls = "auto";
    int cores = 0;
    app.add_option("--tls", tls, "When it speaks TLS")
        ->envname("TOOL_TLS")
        ->check(CLI::IsMember({"auto", "always"}))
        ->capture_default_str();
    app.add_option("--cores", cores, "How many")->check(CLI::Range(0, 4096));
    dress_help(app, 80);
    EXPECT_THAT(app.help(), HasSubstr("\n  --tls auto|always         "
                                      "When it speaks TLS (default: auto) [TOOL_TLS]\n"));
    EXPECT_THAT(app.help(), HasSubstr("\n  --cores N                 How many\n"));
}

// The way to log in without a terminal was in no help of login's.
TEST(Help, OfLoginHasWhatAnswersItsQuestions) {
    Options options;
    CLI::App app;
    declare(app, options);
    const std::string help = app.get_subcommand("login")->help();
    EXPECT_THAT(help, HasSubstr("--fingerprint HASH"));
    EXPECT_THAT(help, HasSubstr("--token-file FILE"));
    EXPECT_THAT(help, HasSubstr("--forget"));
    for (const char* arguments : {"--fingerprint sha256:1 --token-file t login https://h",
                                  "login https://h --fingerprint sha256:1 --token-file t"}) {
        Options given;
        CLI::App again;
        declare(again, given);
        again.parse(arguments);
        EXPECT_EQ(given.fingerprint, "sha256:1") << arguments;
        EXPECT_EQ(given.token_file, "t") << arguments;
    }
}

TEST(Help, LinesAreBrokenAtBlanksAndBetweenAlternatives) {
    EXPECT_EQ(wrapped("one two three", 8), (std::vector<std::string>{"one two", "three"}));
    EXPECT_EQ(wrapped("red|green|blue", 10), (std::vector<std::string>{"red|green|", "blue"}));
    EXPECT_EQ(wrapped("a b\nc", 80), (std::vector<std::string>{"a b", "c"}));
    EXPECT_EQ(wrapped("……… …", 5), (std::vector<std::string>{"……… …"}));  // characters, not bytes
    EXPECT_EQ(wrapped("https://example.org x", 5),
              (std::vector<std::string>{"https://example.org", "x"}));
    EXPECT_TRUE(wrapped("", 5).empty());
}

TEST(Help, AListThatNoLineHoldsIsBrokenBehindAComma) {
    EXPECT_EQ(wrapped("as rank,step,time ends", 10),
              (std::vector<std::string>{"as", "rank,step,", "time ends"}));
    EXPECT_EQ(wrapped("as a,b ends", 6), (std::vector<std::string>{"as a,b", "ends"}));
}

TEST(Help, AFooterIsFilledAndItsCommandsGoOnBehindABackslash) {
    const std::string text =
        "One two\nthree.\n\nExamples:\n  run -- python train.py\n      what it does";
    EXPECT_EQ(filled(text, 80),
              "One two three.\n\nExamples:\n  run -- python train.py\n      what it does\n");
    EXPECT_EQ(filled(text, 20),
              "One two three.\n\nExamples:\n  run -- \\\n      python \\\n      train.py\n"
              "      what it does\n");
}

// Every verb of the command line, at every width from the narrowest that help is made for.
TEST(Help, NoLineIsLongerThanTheTerminal) {
    for (std::size_t columns = 60; columns <= 80; ++columns) {
        CLI::App app;
        Options options;
        declare(app, options);
        dress_help(app, columns);
        const auto check = [columns](const CLI::App& one, const auto& again) -> void {
            std::istringstream lines{one.help()};
            for (std::string line; std::getline(lines, line);) {
                const auto characters = std::count_if(line.begin(), line.end(), [](char c) {
                    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
                });
                EXPECT_LE(characters, static_cast<std::ptrdiff_t>(columns)) << line;
            }
            for (const CLI::App* verb : declared_verbs(one)) {
                again(*verb, again);
            }
        };
        check(app, check);
    }
}

TEST(ManPage, VerbsOfVerbsAreOnIt) {
    CLI::App app;
    app.name("tool");
    CLI::App* keys = app.add_subcommand("kv", "Keys");
    bool once = false;
    keys->add_subcommand("set", "Set a key")->add_flag("--once", once, "Never again");
    const std::string page = man_page(app, {}, "1", "2026-11-21");
    EXPECT_THAT(page, HasSubstr(".SS kv set\n"));
    EXPECT_THAT(page, HasSubstr("\\fB\\-\\-once\\fR"));
}

}  // namespace
}  // namespace lockstep::cli
