#include "daemon/http/logs/log_search.hpp"

#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace lockstep {
namespace {

class LogSearchTest : public testing::Test {
  protected:
    void write(int rank, const std::string& text) {
        const std::string number = std::to_string(rank);
        std::ofstream{folder_ / ("rank-" + std::string(5 - number.size(), '0') + number + ".log"),
                      std::ios::binary}
            << text;
    }
    LogSearch ask(const std::string& text, int ranks) {
        LogSearch out;
        out.text = text;
        out.folder = folder_.path().string();
        for (int rank = 0; rank < ranks; ++rank) {
            out.ranks.push_back(rank);
        }
        return out;
    }
    const test::TemporaryFolder folder_;
};

TEST_F(LogSearchTest, LinesThatDifferInNumbersAndAddressesAreOneFinding) {
    for (int rank = 0; rank < 5; ++rank) {
        const std::string n = std::to_string(rank);
        write(rank, "start\nerror: peer 10.0.0." + n + " at 0x7f" + n + "a gone\n" +
                        (rank == 3 ? "error: no space\n" : "fine\n"));
    }
    const Json out = search_logs(ask("error", 6));
    ASSERT_EQ(out["items"].size(), 2U) << out;
    EXPECT_EQ(out["items"][0]["text"], "error: peer 10.0.0.0 at 0x7f0a gone");
    EXPECT_EQ(out["items"][0]["count"], 5);
    EXPECT_EQ(out["items"][0]["ranks"], "0-4");
    EXPECT_EQ(out["items"][0]["first"], (Json{{"rank", 0}, {"offset", 6}}));
    EXPECT_EQ(out["items"][1]["ranks"], "3");
    EXPECT_EQ(out["searched_ranks"], 6);
    EXPECT_EQ(out["truncated"], false);
    EXPECT_EQ(folded_line("a 12 b0x1F,3.5"), "a # b#,#.#");
}

TEST_F(LogSearchTest, APatternFindsWhatATextCannot) {
    write(0, "Loss 3\nloss 4\nclose\n");
    LogSearch one = ask("", 1);
    one.pattern = TextPattern::parse("(?i)^loss \\d+$").value();
    const Json out = search_logs(one);
    ASSERT_EQ(out["items"].size(), 2U) << out;
    EXPECT_EQ(out["items"][1]["first"]["offset"], 7);
}

TEST_F(LogSearchTest, WorkIsBoundedAndTheNewestIsLookedAt) {
    std::string text;
    for (int i = 0; i < 60'000; ++i) {
        text += "line that is not it\n";
    }
    write(0, "needle old\n" + text + "needle new\n");
    LogSearch small = ask("needle", 1);
    small.bytes = 200'000;
    const Json out = search_logs(small);
    ASSERT_EQ(out["items"].size(), 1U);
    EXPECT_EQ(out["items"][0]["text"], "needle new");
    EXPECT_EQ(out["items"][0]["first"]["offset"], 11 + text.size());
    EXPECT_EQ(out["truncated"], true);
    EXPECT_LE(out["searched_bytes"].get<std::size_t>(), 200'000U);
    EXPECT_EQ(search_logs(ask("needle", 1))["items"].size(), 2U) << "across pieces of a MiB";
    LogSearch late = ask("needle", 1);
    late.until = std::chrono::steady_clock::now();
    EXPECT_EQ(search_logs(late)["searched_ranks"], 0);
    LogSearch few = ask("", 1);
    few.pattern = TextPattern::parse("needle").value();
    few.limit = 1;
    EXPECT_EQ(search_logs(few)["truncated"], true);
}

TEST_F(LogSearchTest, ALongLineAndBytesThatAreNoTextDoNoHarm) {
    write(0, std::string(3U << 20U, 'a') + "needle\n\x1b[31m\xff needle <b>\n");
    const Json out = search_logs(ask("needle", 1));
    ASSERT_EQ(out["items"].size(), 2U) << out["items"].size();
    EXPECT_LE(out["items"][0]["text"].get<std::string>().size(), 500U);
    EXPECT_EQ(out["items"][1]["text"].get<std::string>().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep
