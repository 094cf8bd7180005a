#include "job/cli/plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Plot : public testing::Test {
  protected:
    static void SetUpTestSuite() { Terminal::detect(); }  // sets the locale for widths
    static Terminal screen(std::size_t width, bool colour, bool unicode = true) {
        Terminal terminal;
        terminal.interactive = true;
        terminal.width = width;
        terminal.colour = colour;
        terminal.unicode = unicode;
        return terminal;
    }
    static PlotLabels titled(const std::string& title) {
        PlotLabels labels;
        labels.title = title;
        return labels;
    }
    static PlotLine falling(std::int32_t rank, int steps = 50) {
        PlotLine line;
        line.rank = rank;
        for (int step = 1; step <= steps; ++step) {
            const double value = 50.0 / step;
            line.points.push_back({static_cast<double>(step), value, value, value});
        }
        return line;
    }
    static std::string joined(const std::vector<std::string>& lines) {
        std::string out = "\n";
        for (const std::string& line : lines) {
            out += line + "\n";
        }
        return out;
    }
};

TEST_F(Plot, OneLineIsDrawnInBrailleWithItsScaleAndExtremes) {
    EXPECT_EQ(joined(plot(screen(60, false), titled("loss"), {falling(0)}, 6)), R"(
loss
   50 ┤⢇
      ┤⢸
25.50 ┤⠈⡆
      ┤ ⠱⡀
      ┤  ⠑⠤⣀⡀
    1 ┤     ⠈⠉⠑⠒⠒⠒⠢⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀
      └─────────────────────────────────────────────────────
       1                       step                       50
       ━ rank 0  min 1 (50)  max 50 (1)  last 1
)");
}

TEST_F(Plot, WithoutUtf8ACharacterIsADot) {
    EXPECT_EQ(joined(plot(screen(40, false, false), titled("loss"), {falling(3, 12)}, 6)), R"(
loss
    50 |*
       | *
 27.08 |  *
       |   **
       |     ********
4.1667 |             *******************
       +--------------------------------
        1            step             12
        * rank 3  min 4.1667 (12)  max ~
)");
}

TEST_F(Plot, SeveralLinesAreToldApartByColourOrBySign) {
    PlotLine level;
    level.rank = 7;
    level.points = {{1, 10, 10, 10}, {50, 10, 10, 10}};
    const auto coloured = plot(screen(60, true), titled("loss"), {falling(0), level}, 8);
    EXPECT_THAT(joined(coloured),
                AllOf(HasSubstr("\x1b[36m"), HasSubstr("\x1b[33m━\x1b[0m rank 7")));
    const auto plain = plot(screen(60, false), titled("loss"), {falling(0), level}, 8);
    EXPECT_THAT(joined(plain), AllOf(HasSubstr("0 rank 0"), HasSubstr("1 rank 7"), HasSubstr("*"),
                                     Not(HasSubstr("\x1b"))));
}

// One high value among a hundred others.
TEST_F(Plot, EverySpikeIsSeen) {
    PlotLine line;
    for (int i = 0; i < 100; ++i) {
        line.points.push_back({i * 100.0, 1, i == 57 ? 900.0 : 2.0, 1.5});
    }
    const auto lines = plot(screen(60, false, false), titled("loss"), {line}, 10);
    EXPECT_THAT(lines.at(1), AllOf(HasSubstr("900 |"), HasSubstr("*"))) << "in the top row";
    EXPECT_THAT(joined(lines), HasSubstr("max 900 (5700)"));
    // A band keeps it, too.
    const auto band = plot(screen(40, false, false), titled("loss"),
                           {line, falling(1), falling(2), falling(3), falling(4)}, 10);
    EXPECT_THAT(band.at(1), AllOf(HasSubstr("900 |"), HasSubstr(":")));
}

TEST_F(Plot, TheMedianOfAnEvenNumberIsBetweenTheTwoInTheMiddle) {
    std::vector<PlotLine> lines;
    for (std::int32_t rank = 0; rank < 8; ++rank) {
        PlotLine line;
        line.rank = rank;
        for (int step = 0; step <= 30; ++step) {
            const double value = rank < 4 ? 10.0 : 18.0;
            line.points.push_back({static_cast<double>(step), value, value, value});
        }
        lines.push_back(std::move(line));
    }
    EXPECT_THAT(plot(screen(50, false), titled("loss"), lines, 9).at(5), HasSubstr("14 ┤████"));
}

TEST_F(Plot, ManyRanksAreABandWithTheirMedian) {
    std::vector<PlotLine> lines;
    for (std::int32_t rank = 0; rank < 9; ++rank) {
        PlotLine line;
        line.rank = rank;
        for (int step = 0; step <= 30; ++step) {
            const double value = 10.0 + rank;
            line.points.push_back({static_cast<double>(step), value, value, value});
        }
        lines.push_back(std::move(line));
    }
    const auto drawn = plot(screen(50, false), titled("loss"), lines, 9);
    EXPECT_THAT(drawn.at(1), HasSubstr("18 ┤░░░░"));
    EXPECT_THAT(drawn.at(5), HasSubstr("14 ┤████")) << "the median";
    EXPECT_THAT(drawn.at(9), HasSubstr("10 ┤░░░░"));
    EXPECT_THAT(joined(plot(screen(120, false), titled("loss"), lines, 9)),
                AllOf(HasSubstr("█ median  ░ min to max of 9 ranks\n"),
                      HasSubstr("  min 10 (rank 0, 0)  max 18 (rank 8, 0)\n")));
}

TEST_F(Plot, GapsAndRestartsBreakTheLineAndAreMarked) {
    PlotLine line;
    line.points = {{0, 5, 5, 5}, {10, 5, 5, 5}, {20, NAN, NAN, NAN}, {30, 5, 5, 5}, {40, 5, 5, 5}};
    line.nonfinite = {20};
    PlotLabels labels = titled("loss");
    labels.restarts = {35};
    // 41 columns of canvas: a step is a column.
    const auto lines = plot(screen(44, false, false), labels, {line}, 3);
    EXPECT_EQ(joined(lines), R"(
loss
  |
5 |***********                   *         *
  |
  +-----------------------------------------
                       !              R
   ! not finite   R ranks restarted
   0                 step                 40
   * rank 0  min 5 (0)  max 5 (0)  last 5  ~
)");
}

TEST_F(Plot, TimesAreReadAsTimes) {
    PlotLine line;
    line.points = {{1'763'687'000, 0.021, 0.021, 0.021}, {1'763'687'600, 1.5, 1.5, 1.5}};
    PlotLabels labels = titled("step_seconds [s]");
    labels.x_title = "time (UTC)";
    labels.x_is_time = true;
    labels.y_is_time = true;
    const std::string drawn = joined(plot(screen(80, false), labels, {line}, 6));
    EXPECT_THAT(drawn, AllOf(HasSubstr("1.50 s ┤"), HasSubstr("21.0 ms ┤"), HasSubstr("01:03:20"),
                             HasSubstr("time (UTC)"), HasSubstr("01:13:20")));
    line.points.back().x += 3 * 86'400;
    EXPECT_THAT(joined(plot(screen(80, false), labels, {line}, 6)), HasSubstr("11-24 01:13"));
}

TEST_F(Plot, NoWidthIsTooSmall) {
    for (const bool unicode : {true, false}) {
        for (std::size_t width = 1; width < 100; ++width) {
            for (const std::size_t ranks : {1U, 3U, 12U}) {
                std::vector<PlotLine> lines;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    lines.push_back(falling(static_cast<std::int32_t>(rank)));
                }
                lines.front().nonfinite = {3};
                for (const std::string& line :
                     plot(screen(width, unicode, unicode), titled("loss"), lines, 6)) {
                    ASSERT_LE(visible_width(line), width) << line;
                }
            }
        }
    }
    EXPECT_THAT(joined(plot(screen(20, false, false), titled("loss"), {falling(0)}, 4)),
                HasSubstr("50 |*"));
}

TEST_F(Plot, HugeValuesHaveAPlace) {
    PlotLine line;
    line.points = {{0, -1.7e308, -1.7e308, -1.7e308}, {1, 1.7e308, 1.7e308, 1.7e308}};
    const auto lines = plot(screen(60, false, false), titled("loss"), {line}, 5);
    EXPECT_THAT(lines.at(1), HasSubstr("*"));
    EXPECT_THAT(lines.at(5), HasSubstr("*"));
}

TEST_F(Plot, APlotOfNothingIsEmpty) {
    PlotLine line;
    EXPECT_THAT(plot(screen(80, false), titled("loss"), {line}, 8), IsEmpty());
    EXPECT_THAT(plot(screen(80, false), titled("loss"), {}, 8), IsEmpty());
    line.points.push_back({1, NAN, NAN, NAN});
    EXPECT_THAT(plot(screen(80, false), titled("loss"), {line}, 8), IsEmpty());
    line.points.push_back({2, 5, 5, 5});
    EXPECT_THAT(plot(screen(80, false), titled("loss"), {line}, 8), Not(IsEmpty()));
}

TEST_F(Plot, TheNameOfAMetricHoldsItsUnit) {
    EXPECT_EQ(unit_of("busy_seconds"), "s");
    EXPECT_EQ(unit_of("memory_bytes"), "B");
    EXPECT_EQ(unit_of("loss"), "");
    EXPECT_EQ(unit_of("_seconds"), "");
}

}  // namespace
}  // namespace lockstep::cli
