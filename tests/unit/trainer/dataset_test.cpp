#include "job/trainer/dataset.hpp"

#include "job/base/files.hpp"
#include "job/trainer/digits.hpp"
#include "job/trainer/idx_file.hpp"
#include "job/trainer/loader.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

TEST(IdxFile, WhatIsWrittenReadsBack) {
    const TemporaryFolder folder;
    const IdxFile file{{2, 3}, {1, 2, 3, 4, 5, 255}};
    ASSERT_TRUE(write_idx(folder.path() / "f", file).has_value());
    const Result<IdxFile> got = read_idx(folder.path() / "f", 2);
    ASSERT_TRUE(got.has_value()) << got.error().text();
    EXPECT_EQ(got->sizes, file.sizes);
    EXPECT_EQ(got->values, file.values);
}

TEST(IdxFile, TheBytesAreThoseOfTheFormat) {
    const TemporaryFolder folder;
    ASSERT_TRUE(write_idx(folder.path() / "f", {{258}, std::vector<std::uint8_t>(258)}));
    const std::string bytes = read_file(folder.path() / "f", 1000).value();
    EXPECT_EQ(bytes.substr(0, 8), (std::string{"\0\0\x08\x01\0\0\x01\x02", 8}));
    EXPECT_EQ(bytes.size(), 8U + 258U);
}

struct Damage {
    const char* name;
    std::string bytes;
    std::string message;
};

class IdxFileRefuses : public testing::TestWithParam<Damage> {};

TEST_P(IdxFileRefuses, NamingFileAndNumbers) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "f";
    ASSERT_TRUE(write_file_atomic(path, GetParam().bytes).has_value());
    const Result<IdxFile> got = read_idx(path, 1);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Errc::invalid);
    EXPECT_EQ(got.error().message, path.string() + ": " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Damages, IdxFileRefuses,
    testing::Values(
        Damage{"empty", "", "not an IDX file: only 0 bytes"},
        Damage{"images", std::string{"\0\0\x08\x03\0\0\0\x01", 8},
               "magic number is 2051, must be 2049"},
        Damage{"packed", std::string{"\x1F\x8B\x08\0\0\0\0\0", 8},
               "magic number is 529205248, must be 2049 (compressed: its name must end in .gz)"},
        Damage{"header", std::string{"\0\0\x08\x01\0\0", 6},
               "truncated: the header alone has 8 bytes"},
        Damage{"short",
               std::string{"\0\0\x08\x01\0\0\0\x03"
                           "ab",
                           10},
               "truncated: 2 bytes of values, must be 3"},
        Damage{"long",
               std::string{"\0\0\x08\x01\0\0\0\x01"
                           "ab",
                           10},
               "too long: 2 bytes of values, must be 1"},
        Damage{"zero", std::string{"\0\0\x08\x01\0\0\0\0", 8}, "a size of 0 makes no sense"}),
    [](const auto& each) { return each.param.name; });

TEST(Digits, AnImageDependsOnItsNumberOnly) {
    std::array<std::uint8_t, kDigitPixels> first{};
    std::array<std::uint8_t, kDigitPixels> again{};
    std::array<std::uint8_t, kDigitPixels> test{};
    const std::uint8_t label = draw_digit(true, 12, first);
    draw_digit(true, 13, again);
    EXPECT_NE(first, again);
    EXPECT_EQ(draw_digit(true, 12, again), label);
    EXPECT_EQ(first, again);
    draw_digit(false, 12, test);
    EXPECT_NE(first, test);
}

TEST(Digits, EveryDigitOccursAboutEquallyOftenAndLeavesInk) {
    std::array<int, 10> counts{};
    std::array<std::uint8_t, kDigitPixels> pixels{};
    for (std::uint32_t i = 0; i < 2000; ++i) {
        ++counts[draw_digit(true, i, pixels)];
        const auto ink = std::count_if(pixels.begin(), pixels.end(),
                                       [](std::uint8_t value) { return value > 100; });
        ASSERT_GT(ink, 10) << i;
        ASSERT_LT(ink, 400) << i;
    }
    for (const int count : counts) {
        EXPECT_GT(count, 140);
        EXPECT_LT(count, 260);
    }
}

TEST(Digits, ManyRanksMayMakeThemAtOnce) {
    const TemporaryFolder folder;
    const std::filesystem::path data = folder.path() / "a" / "digits";
    std::vector<std::thread> ranks;
    std::vector<Status> results(4);
    for (Status& result : results) {
        ranks.emplace_back([&result, &data] { result = make_digits(data, 300, 20); });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    for (const Status& result : results) {
        EXPECT_TRUE(result.has_value()) << result.error().text();
    }
    const Result<SampleSet> train = load_idx_images(data, "train");
    ASSERT_TRUE(train.has_value()) << train.error().text();
    EXPECT_EQ(train->count, 300U);
    EXPECT_EQ(load_idx_images(data, "t10k")->count, 20U);
}

TEST(Dataset, DigitsAreKeptInTheCacheUnderTheirSizes) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.train_samples = 50;
    config.test_samples = 10;
    const Result<Dataset> data = load_dataset(config, folder.path());
    ASSERT_TRUE(data.has_value()) << data.error().text();
    EXPECT_EQ(data->train.count, 50U);
    EXPECT_EQ(data->test.count, 10U);
    EXPECT_EQ(data->train.input.shape, (std::vector<std::int64_t>{28, 28, 1}));
    EXPECT_TRUE(
        std::filesystem::exists(folder.path() / "digits-50-10" / "train-images-idx3-ubyte"));
}

TEST(Dataset, AFolderWithOtherSizesIsMadeAnew) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.dataset_path = (folder.path() / "d").string();
    config.train_samples = 50;
    config.test_samples = 10;
    ASSERT_TRUE(load_dataset(config, {}).has_value());
    config.train_samples = 60;
    EXPECT_EQ(load_dataset(config, {})->train.count, 60U);
}

// dataset.name is digits unless it is given: a path to MNIST alone would replace it.
TEST(Dataset, DigitsTakeNobodysFiles) {
    const std::string images = "train-images-idx3-ubyte";
    const std::string labels = "train-labels-idx1-ubyte";
    const std::string packed = "t10k-images-idx3-ubyte.gz";
    for (const std::vector<std::string>& names :
         {std::vector{images, labels}, std::vector{images}, std::vector{packed}}) {
        SCOPED_TRACE(names.front());
        const TemporaryFolder folder;
        for (const std::string& name : names) {
            const IdxFile file = name == labels
                                     ? IdxFile{{20}, std::vector<std::uint8_t>(20, 7)}
                                     : IdxFile{{20, 28, 28}, std::vector<std::uint8_t>(20 * 784)};
            ASSERT_TRUE(write_idx(folder.path() / name, file).has_value());
        }
        TrainConfig config;
        config.dataset_path = folder.path().string();
        config.train_samples = 50;
        config.test_samples = 10;
        const Result<Dataset> data = load_dataset(config, {});
        ASSERT_FALSE(data.has_value());
        EXPECT_EQ(
            data.error().message,
            "digits: " + folder.path().string() +
                ": holds files that are not drawn digits; for MNIST's use dataset.name mnist");
        std::vector<std::string> left;
        for (const auto& each : std::filesystem::directory_iterator{folder.path()}) {
            left.push_back(each.path().filename().string());
        }
        std::sort(left.begin(), left.end());
        EXPECT_EQ(left, names);
    }
}

TEST(Dataset, MnistFilesThatDoNotFitTogetherAreRefused) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.dataset = TrainDataset::mnist;
    config.dataset_path = folder.path().string();
    EXPECT_EQ(load_dataset(config, {}).error().code, Errc::not_found);

    const auto put = [&](const char* name, const IdxFile& file) {
        ASSERT_TRUE(write_idx(folder.path() / name, file).has_value());
    };
    put("train-images-idx3-ubyte", {{2, 28, 28}, std::vector<std::uint8_t>(2 * 784)});
    put("train-labels-idx1-ubyte", {{3}, {1, 2, 3}});
    EXPECT_NE(load_dataset(config, {}).error().message.find("3 labels for 2 images"),
              std::string::npos);
    put("train-labels-idx1-ubyte", {{2}, {1, 10}});
    EXPECT_NE(load_dataset(config, {}).error().message.find("label 10, must be 0..9"),
              std::string::npos);
    put("train-labels-idx1-ubyte", {{2}, {1, 9}});
    put("t10k-images-idx3-ubyte", {{1, 14, 28}, std::vector<std::uint8_t>(392)});
    put("t10k-labels-idx1-ubyte", {{1}, {0}});
    EXPECT_NE(load_dataset(config, {}).error().message.find("14 × 28, must be 28 × 28"),
              std::string::npos);
    put("t10k-images-idx3-ubyte", {{1, 28, 28}, std::vector<std::uint8_t>(784)});
    EXPECT_TRUE(load_dataset(config, {}).has_value());
}

// As Keras and the MNIST page hand them out: packed by gzip.
TEST(Dataset, MnistMayStayPacked) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.dataset_path = folder.path().string();
    config.train_samples = 50;
    config.test_samples = 10;
    const Result<Dataset> plain = load_dataset(config, {});
    ASSERT_TRUE(plain.has_value()) << plain.error().text();
    for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
        const std::string bytes = read_file(folder.path() / name, 1U << 20U).value();
        const gzFile file = gzopen((folder.path() / (std::string{name} + ".gz")).c_str(), "wb");
        ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
                  static_cast<int>(bytes.size()));
        ASSERT_EQ(gzclose(file), Z_OK);
        std::filesystem::remove(folder.path() / name);
    }
    config.dataset = TrainDataset::mnist;
    const Result<Dataset> packed = load_dataset(config, {});
    ASSERT_TRUE(packed.has_value()) << packed.error().text();
    EXPECT_EQ(*packed->train.input.bytes, *plain->train.input.bytes);
    EXPECT_EQ(*packed->test.target.bytes, *plain->test.target.bytes);

    const auto images = folder.path() / "train-images-idx3-ubyte.gz";
    std::filesystem::resize_file(images, std::filesystem::file_size(images) / 2);
    const Result<Dataset> torn = load_dataset(config, {});
    ASSERT_FALSE(torn.has_value());
    EXPECT_NE(torn.error().message.find("train-images-idx3-ubyte.gz: gzip: truncated"),
              std::string::npos)
        << torn.error().message;
}

// A record: the label, then the planes red, green, blue.
std::string cifar_record(std::uint8_t label) {
    std::string record(1, static_cast<char>(label));
    for (const char plane : {'\x10', '\x20', '\x30'}) {
        record.append(1024, plane);
    }
    record[1 + 5] = '\x7f';  // the sixth red pixel
    return record;
}

TEST(Dataset, CifarsPlanesBecomePixels) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.dataset = TrainDataset::cifar10;
    config.dataset_path = folder.path().string();
    EXPECT_EQ(load_dataset(config, {}).error().code, Errc::not_found);
    for (std::uint8_t part = 1; part <= 5; ++part) {
        const std::string name = "data_batch_" + std::to_string(part) + ".bin";
        ASSERT_TRUE(write_file_atomic(folder.path() / name, cifar_record(part)).has_value());
    }
    ASSERT_TRUE(
        write_file_atomic(folder.path() / "test_batch.bin", cifar_record(0) + cifar_record(9))
            .has_value());
    const Result<Dataset> data = load_dataset(config, {});
    ASSERT_TRUE(data.has_value()) << data.error().text();
    EXPECT_EQ(data->train.count, 5U);
    EXPECT_EQ(data->test.count, 2U);
    EXPECT_EQ(data->train.input.shape, (std::vector<std::int64_t>{32, 32, 3}));
    const std::uint8_t* pixels = data->train.input.sample(4);
    EXPECT_EQ((std::vector<std::uint8_t>{pixels + 12, pixels + 18}),
              (std::vector<std::uint8_t>{0x10, 0x20, 0x30, 0x7f, 0x20, 0x30}));
    EXPECT_EQ(data->train.target.sample(4)[0], 5);
    EXPECT_EQ(data->test.target.sample(1)[0], 9);
}

TEST(Dataset, CifarsTornOrForeignFilesAreRefusedByName) {
    const TemporaryFolder folder;
    TrainConfig config;
    config.dataset = TrainDataset::cifar10;
    config.dataset_path = folder.path().string();
    const auto first = folder.path() / "data_batch_1.bin";
    const auto message = [&](const std::string& bytes) {
        EXPECT_TRUE(write_file_atomic(first, bytes).has_value());
        return load_dataset(config, {}).error().message;
    };
    EXPECT_NE(message(cifar_record(1).substr(0, 3000))
                  .find("data_batch_1.bin: truncated: 3000 bytes, must be a multiple of 3073"),
              std::string::npos);
    EXPECT_NE(message(cifar_record(1) + cifar_record(10))
                  .find("data_batch_1.bin: record 1: label 10, must be 0..9"),
              std::string::npos);
}

TEST(Dataset, TextIsCutIntoSamplesThatAskForTheNextByte) {
    const TemporaryFolder folder;
    std::string text;
    for (int i = 0; i < 200; ++i) {
        text += static_cast<char>('a' + i % 26);
    }
    ASSERT_TRUE(write_file_atomic(folder.path() / "t", text).has_value());
    TrainConfig config;
    config.dataset = TrainDataset::text;
    config.dataset_path = (folder.path() / "t").string();
    config.context = 9;
    const Result<Dataset> data = load_dataset(config, {});
    ASSERT_TRUE(data.has_value()) << data.error().text();
    EXPECT_EQ(data->classes, 256);
    EXPECT_EQ(data->train.count, 19U);  // 180 bytes, the last one is only an answer
    EXPECT_EQ(data->test.count, 2U);    // 20 bytes
    EXPECT_EQ(data->train.input.sample(2)[0], 'a' + 18);
    EXPECT_EQ(data->train.target.sample(2)[0], 'a' + 19);
    config.context = 100;
    EXPECT_NE(load_dataset(config, {})
                  .error()
                  .message.find("200 bytes, must be at least 202 for a context of 100"),
              std::string::npos);
}

Result<Dataset> pairs_of(const std::filesystem::path& folder, const std::string& text) {
    EXPECT_TRUE(write_file_atomic(folder / "pairs.tsv", text).has_value());
    TrainConfig config;
    config.dataset = TrainDataset::pairs;
    config.dataset_path = (folder / "pairs.tsv").string();
    config.context = 4;
    return load_dataset(config, {});
}

TEST(Dataset, PairsBecomeSourceTargetSoFarAndWhatFollows) {
    const TemporaryFolder folder;
    std::string text = "ab\txyz\tCC-BY 2.0\r\n\nlonger\tthan context\n";
    for (int i = 2; i <= 10; ++i) {
        text += "s\tt\n";
    }
    const Result<Dataset> data = pairs_of(folder.path(), text);
    ASSERT_TRUE(data.has_value()) << data.error().text();
    EXPECT_EQ(data->classes, 256);
    EXPECT_EQ(data->train.count, 9U);
    EXPECT_EQ(data->test.count, 1U);
    Loader loader{data->train, 2, 0};
    loader.begin({0, 1});
    const Batch batch = loader.next();
    const std::vector<std::int64_t> input(batch.input.indices(), batch.input.indices() + 9);
    EXPECT_EQ(input, (std::vector<std::int64_t>{'a', 'b', 0, 0, 2, 'x', 'y', 'z', 0}));
    const std::vector<std::int64_t> answers(batch.target.indices(), batch.target.indices() + 10);
    EXPECT_EQ(answers, (std::vector<std::int64_t>{'x', 'y', 'z', 3, kNoAnswer, 't', 3, kNoAnswer,
                                                  kNoAnswer, kNoAnswer}));
}

TEST(Dataset, PairsThatAreNoneAreRefusedByLine) {
    const TemporaryFolder folder;
    std::string good;
    for (int i = 0; i < 10; ++i) {
        good += "a\tb\n";
    }
    const std::vector<std::pair<std::string, std::string>> cases{
        {good + "no tab\n", "line 11 has no tab between source and target"},
        {good + "\tb\n", "line 11 has an empty source or target"},
        {good + "a\t\tc\n", "line 11 has an empty source or target"},
        {good + std::string{"a\0\tb\n", 5}, "line 11 has one of the bytes 0, 2 and 3"},
        {good + "a\tb", "the last line has no end: the file is cut off"},
        {good.substr(4), "9 pairs of at most context = 4 bytes each, must be at least 10"},
        {"", "0 pairs"},
    };
    for (const auto& [text, reason] : cases) {
        const Result<Dataset> data = pairs_of(folder.path(), text);
        ASSERT_FALSE(data.has_value()) << reason;
        EXPECT_EQ(data.error().code, Errc::invalid);
        EXPECT_NE(data.error().message.find("pairs.tsv: " + reason), std::string::npos)
            << data.error().message;
    }
    TrainConfig config;
    config.dataset = TrainDataset::pairs;
    config.dataset_path = (folder.path() / "none.tsv").string();
    EXPECT_EQ(load_dataset(config, {}).error().code, Errc::not_found);
}

}  // namespace
}  // namespace lockstep
