// Tables of numbers.
#include "job/base/files.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/loader.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

Result<Dataset> table_of(const std::filesystem::path& folder, const std::string& text) {
    EXPECT_TRUE(write_file_atomic(folder / "table.csv", text).has_value());
    TrainConfig config;
    config.dataset = TrainDataset::table;
    config.dataset_path = (folder / "table.csv").string();
    return load_dataset(config, {});
}

// Rows 1 to 9 train: the first column has mean 5 and deviation √(60 / 9), the second one always the
// same number, the third one is 10 · the first.
void expect_ten_rows(const Dataset& data) {
    EXPECT_EQ(data.classes, 1);
    EXPECT_EQ(data.train.count, 9U);
    EXPECT_EQ(data.test.count, 1U);
    ASSERT_EQ(data.columns.size(), 3U);
    const double deviation = std::sqrt(60.0 / 9.0);
    EXPECT_DOUBLE_EQ(data.columns[0].mean, 5.0);
    EXPECT_DOUBLE_EQ(data.columns[0].deviation, deviation);
    EXPECT_DOUBLE_EQ(data.columns[1].deviation, 1.0);
    EXPECT_DOUBLE_EQ(data.columns[2].mean, 50.0);
    EXPECT_DOUBLE_EQ(data.columns[2].deviation, 10.0 * deviation);
    for (const auto& [set, row, value] :
         {std::tuple{&data.train, 0U, 1.0}, {&data.test, 0U, 10.0}}) {
        Loader loader{*set, 1, 0};
        loader.begin({row});
        const Batch batch = loader.next();
        const auto scaled = static_cast<float>((value - 5.0) / deviation);
        EXPECT_FLOAT_EQ(batch.input.floats()[0], scaled);
        EXPECT_FLOAT_EQ(batch.input.floats()[1], 0.0F);
        EXPECT_FLOAT_EQ(batch.target.floats()[0], scaled);
    }
}

TEST(Table, ItsColumnsAreScaledByItsTrainingRows) {
    const TemporaryFolder folder;
    std::string commas = "size, \"rooms\",price\r\n\n";
    std::string blanks;
    for (int i = 1; i <= 10; ++i) {
        const std::string n = std::to_string(i);
        commas += n + ",7 , " + n + "0.0\r\n";
        blanks += "  " + n + "\t7.0   " + n + "0\n";
    }
    const Result<Dataset> named = table_of(folder.path(), commas);
    ASSERT_TRUE(named.has_value()) << named.error().text();
    expect_ten_rows(*named);
    EXPECT_EQ(named->columns[1].name, "rooms");
    const Result<Dataset> plain = table_of(folder.path(), blanks);
    ASSERT_TRUE(plain.has_value()) << plain.error().text();
    expect_ten_rows(*plain);
    EXPECT_EQ(plain->columns[1].name, "2");
}

// The mean of nine times 0.1 is not 0.1: what is left of the deviation is no scale for anything.
TEST(Table, AColumnThatIsAlwaysTheSameHasNoScaleOfRoundingErrors) {
    const TemporaryFolder folder;
    std::string rows;
    for (int i = 1; i <= 10; ++i) {
        rows += (i == 10 ? "0.2 " : "0.1 ") + std::to_string(i) + "\n";
    }
    const Result<Dataset> data = table_of(folder.path(), rows);
    ASSERT_TRUE(data.has_value()) << data.error().text();
    EXPECT_EQ(data->columns[0].mean, 0.1);
    EXPECT_EQ(data->columns[0].deviation, 1.0);
    rows = "1e200 1\n" + rows;
    const Result<Dataset> large = table_of(folder.path(), rows);
    ASSERT_FALSE(large.has_value());
    EXPECT_NE(large.error().message.find("column 1: its numbers are too large"), std::string::npos)
        << large.error().text();
}

TEST(Table, WhatIsNoneIsRefusedByLine) {
    const TemporaryFolder folder;
    std::string good;
    for (int i = 0; i < 10; ++i) {
        good += "1,2\n";
    }
    const std::vector<std::pair<std::string, std::string>> cases{
        {good + "1,x\n", "line 11 column 2: \"x\" is no number"},
        {good + "1,\n", "line 11 column 2: \"\" is no number"},
        {good + "nan,1\n", "line 11 column 1: \"nan\" is no number"},
        {good + "1,2,3\n", "line 11 has 3 columns, the first one has 2"},
        {"1\n" + good, "line 1 has 1 columns, must be 2 to 65536"},
        {"a,b\nc,d\n" + good, "line 2 column 1: \"c\" is no number"},
        {good + "1,2", "the last line has no end: the file is cut off"},
        {good.substr(4), "9 rows, must be at least 10"},
        {"a,b\n", "0 rows"},
        {"", "0 rows"},
    };
    for (const auto& [text, reason] : cases) {
        const Result<Dataset> data = table_of(folder.path(), text);
        ASSERT_FALSE(data.has_value()) << reason;
        EXPECT_EQ(data.error().code, Errc::invalid);
        EXPECT_NE(data.error().message.find("table.csv: " + reason), std::string::npos)
            << data.error().message;
    }
}

}  // namespace
}  // namespace lockstep
