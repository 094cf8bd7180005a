#include "job/cli/terminal.hpp"

#include "job/base/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class TerminalText : public testing::Test {
  protected:
    static void SetUpTestSuite() { Terminal::detect(); }  // sets the locale for widths
    static Terminal wide(std::size_t width) {
        Terminal terminal;
        terminal.interactive = true;
        terminal.width = width;
        return terminal;
    }
};

TEST_F(TerminalText, AStateHasTheColourOfItsTone) {
    for (const char* state : {"succeeded", "running"}) {
        EXPECT_EQ(state_style(state), Style::green) << state;
    }
    for (const char* state : {"failed", "lost"}) {
        EXPECT_EQ(state_style(state), Style::red) << state;
    }
    for (const char* state : {"cancelled", "restarting", "requeued", "held", "stopped"}) {
        EXPECT_EQ(state_style(state), Style::yellow) << state;
    }
    for (const char* state : {"accepted", "queued", "starting", "waiting", "of_tomorrow", ""}) {
        EXPECT_EQ(state_style(state), Style::cyan) << state;
    }
}

TEST_F(TerminalText, WidthCountsColumnsNotBytes) {
    EXPECT_EQ(visible_width("abc"), 3U);
    EXPECT_EQ(visible_width("é█"), 2U);
    EXPECT_EQ(visible_width("\x1b[1;31mred\x1b[0m"), 3U);
    EXPECT_EQ(visible_width("日本"), 4U);
}

TEST_F(TerminalText, ForeignTextCannotSteerTheTerminal) {
    EXPECT_EQ(harmless("a\x1b[2Jb\x07"
                       "c"),
              "abc");
    EXPECT_EQ(harmless("a\xc2\x9b"
                       "2Jb"),
              "a2Jb")
        << "U+009B begins a sequence, too";
    EXPECT_EQ(harmless("a\xe2\x80\xae"
                       "b\xe2\x81\xa6"
                       "c"),
              "abc")
        << "right to left";
    EXPECT_EQ(harmless("a\nb\té日"), "a\nb\té日");
    EXPECT_EQ(one_line("a\nb"), "a b");
}

TEST_F(TerminalText, WithoutUtf8OtherCharactersAreSpelledAtTheirWidth) {
    Terminal terminal;
    EXPECT_EQ(spelled(terminal, "é日"), "é日");
    terminal.unicode = false;
    EXPECT_EQ(spelled(terminal, "aé日\x1b[1mb"), "a???\x1b[1mb");
}

TEST_F(TerminalText, CuttingKeepsColoursClosedAndCharactersWhole) {
    Terminal terminal = wide(80);
    terminal.colour = true;
    EXPECT_EQ(cut(terminal, "abcdef", 6), "abcdef");
    EXPECT_EQ(cut(terminal, "abcdef", 4), "abc…");
    EXPECT_EQ(cut(terminal, paint(terminal, Style::red, "abcdef"), 3), "\x1b[31mab…\x1b[0m");
    EXPECT_EQ(visible_width(cut(terminal, "日本日本", 4)), 3U);
    terminal.unicode = false;
    EXPECT_EQ(cut(terminal, "abcdef", 4), "abc~");
}

TEST_F(TerminalText, NumbersKeepFourDigits) {
    EXPECT_EQ(format_value(0), "0");
    EXPECT_EQ(format_value(0.53123), "0.5312");
    EXPECT_EQ(format_value(12.3456), "12.35");
    EXPECT_EQ(format_value(1234.5), "1234");
    EXPECT_EQ(format_value(42), "42");
    EXPECT_EQ(format_value(3.1e-6), "3.10e-06");
    EXPECT_EQ(format_value(NAN), "nan");
    EXPECT_EQ(format_value(-INFINITY), "-inf");
    EXPECT_EQ(format_seconds(0.0213), "21.3 ms");
    EXPECT_EQ(format_seconds(1.25), "1.25 s");
    EXPECT_EQ(format_seconds(125), "00:02:05");
    EXPECT_EQ(format_clock(2 * 86'400 + 3 * 3600 + 4 * 60 + 5), "2-03:04:05");
    EXPECT_EQ(format_clock(NAN), "--:--:--");
}

TEST_F(TerminalText, SparklinesShowTheWholeRunInTheirWidth) {
    const Terminal terminal;
    EXPECT_EQ(sparkline(terminal, {0, 1, 2, 3, 4, 5, 6, 7}, 8), "▁▂▃▄▅▆▇█");
    EXPECT_EQ(sparkline(terminal, {8, 8, 4, 4, 0, 0}, 3), "█▄▁");
    EXPECT_EQ(sparkline(terminal, {1, NAN, 1}, 4), "▄!▄ ");
    EXPECT_EQ(sparkline(terminal, {}, 2), "  ");
    EXPECT_EQ(sparkline(terminal, {1, 2}, 0), "");
}

TEST_F(TerminalText, BarsAreExactlyAsWideAsAsked) {
    Terminal terminal;
    for (const double share : {-1.0, 0.0, 0.01, 0.5, 0.99, 1.0, 7.0}) {
        EXPECT_EQ(visible_width(progress_bar(terminal, share, 10)), 10U) << share;
    }
    EXPECT_EQ(progress_bar(terminal, 1, 3), "███");
    terminal.unicode = false;
    EXPECT_EQ(progress_bar(terminal, 0.5, 4), "##..");
}

TEST_F(TerminalText, TablesGiveWayInTheColumnThatMay) {
    Table table({{"ID"}, {"NAME", false, true}, {"STEP", true}});
    table.row({"ls-1", std::string(100, 'x'), "5"});
    const auto lines = table.lines(wide(40));
    for (const std::string& line : lines) {
        EXPECT_LE(visible_width(line), 40U);
    }
    EXPECT_THAT(lines.at(1), HasSubstr("…"));
    Terminal pipe;
    EXPECT_THAT(table.lines(pipe).at(1), HasSubstr(std::string(100, 'x')));
}

TEST_F(TerminalText, ABlockThatShrinksLeavesNothingBehind) {
    std::ostringstream out;
    const Terminal terminal = wide(20);
    LiveBlock block(out, terminal);
    block.draw({"one", "two", "three"});
    block.draw({"four"});
    EXPECT_THAT(out.str(), HasSubstr("\x1b[3A\rfour\x1b[K\n\x1b[J"));
    out.str("");
    block.erase();
    EXPECT_EQ(out.str(), "\x1b[1A\r\x1b[J");
    out.str("");
    block.erase();
    EXPECT_EQ(out.str(), "");
}

TEST(CliTerminal, ABlockIsFoundAgainWhenTheTerminalHasWrappedIt) {
    std::ostringstream out;
    Terminal terminal;
    terminal.interactive = true;
    terminal.width = 80;
    LiveBlock block(out, terminal);
    block.draw({std::string(70, 'a'), "short", std::string(80, 'b')});
    terminal.width = 40;  // 2 + 1 + 2 rows now
    out.str("");
    block.draw({std::string(70, 'a')});
    EXPECT_EQ(out.str().rfind("\x1b[5A\r", 0), 0U);
    out.str("");
    block.erase();  // what was drawn last was cut to 40 columns
    EXPECT_EQ(out.str(), "\x1b[1A\r\x1b[J");
}

// With --json a terminal was handed U+009B, which begins an escape sequence, and U+202E raw.
TEST_F(TerminalText, JsonHoldsNothingThatATerminalObeys) {
    const std::string text = "a\x7f \u009b31m \u202e\u2028\u2066 \u00e4\u6f22 \U0001f600";
    const std::string json = harmless_json(dump_json(Json(text)));
    EXPECT_EQ(json, "\"a\\u007f \\u009b31m \\u202e\\u2028\\u2066 \u00e4\u6f22 \U0001f600\"");
    EXPECT_EQ(parse_json(json).value(), Json(text));
}

}  // namespace
}  // namespace lockstep::cli
