#include "job/trainer/safetensors.hpp"

#include "job/base/files.hpp"
#include "job/trainer/random.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using test::TemporaryFolder;

std::vector<NamedTensor> two_tensors() {
    return {{"a.weight", {2, 3}, {1.0F, -2.0F, 3.5F, 0.0F, 1e-38F, 6.0F}}, {"b", {}, {7.0F}}};
}

std::vector<float> floats_of(const std::string& bytes) {
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

// 8 bytes of length, the header, the values.
std::string file_of(const std::string& header, const std::string& values) {
    const std::uint64_t length = header.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + header + values;
}

TEST(Safetensors, WhatIsWrittenReadsBackBitForBit) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "model.safetensors";
    const std::string bytes = encode_safetensors(two_tensors(), {{"format", "pt"}});
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    EXPECT_EQ(length % 8, 0U);
    EXPECT_EQ(bytes.size(), 8 + length + 7 * sizeof(float));
    ASSERT_TRUE(write_file_atomic(path, bytes).has_value());
    const Result<TensorFile> file = TensorFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().text();
    ASSERT_EQ(file->entries().size(), 2U);
    const TensorEntry& a = file->entries().at("a.weight");
    EXPECT_EQ(a.dtype, "F32");
    EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(floats_of(file->read(a).value()), two_tensors()[0].values);
    EXPECT_EQ(floats_of(file->read(file->entries().at("b")).value()), two_tensors()[1].values);
}

struct Hostile {
    const char* name;
    std::string header;
    std::uint64_t values;  // bytes
    const char* why;

    friend void PrintTo(const Hostile& one, std::ostream* out) { *out << one.name; }
};

class HostileHeader : public testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, IsRefusedByName) {
    const auto got = parse_safetensors_header(GetParam().header, GetParam().values);
    ASSERT_FALSE(got.has_value());
    EXPECT_EQ(got.error().code, Errc::invalid);
    EXPECT_NE(got.error().message.find(GetParam().why), std::string::npos) << got.error().message;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Headers, HostileHeader,
    testing::Values(
        Hostile{"no_json", "{", 0, "header: "}, Hostile{"a_list", "[]", 0, "not an object"},
        Hostile{"deep", std::string(5'000, '['), 0, "header: "},
        Hostile{"twice", R"({"t":{},"t":{}})", 0, "header: "},
        Hostile{"no_fields", R"({"t":{}})", 0, "tensor t: must have dtype"},
        Hostile{"a_number", R"({"t":3})", 0, "tensor t: must have dtype"},
        Hostile{"unknown_dtype", entry("F31", "[1]", "[0,4]"), 4, "dtype \"F31\" is not known"},
        Hostile{"negative_shape", entry("F32", "[-1]", "[0,4]"), 4, "a shape that no file has"},
        Hostile{"fractions", entry("F32", "[1.5]", "[0,4]"), 4, "a shape that no file has"},
        Hostile{"product_overflows", entry("F32", "[4294967296,4294967296]", "[0,0]"), 0,
                "a shape that no file has"},
        Hostile{"product_overflows_behind_zero",
                entry("F32", "[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0,
                "a shape that no file has"},
        Hostile{"many_dimensions", entry("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4,
                "more than 16 dimensions"},
        Hostile{"backwards", entry("F32", "[1]", "[4,0]"), 4, "data_offsets"},
        Hostile{"huge_offsets", entry("F32", "[1]", "[18446744073709551612,18446744073709551616]"),
                4, ""},
        Hostile{"other_size", entry("F32", "[2]", "[0,4]"), 4, "are not of 8 bytes"},
        Hostile{"behind_the_end", entry("F32", "[1]", "[0,4]"), 3, "the file 3"},
        Hostile{"more_values", entry("F32", "[1]", "[0,4]"), 8, "the file 8"},
        Hostile{"a_hole", entry("F32", "[1]", "[4,8]"), 8, "does not begin where"},
        Hostile{"shared",
                R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                4, "does not begin where"}),
    [](const auto& each) { return std::string{each.param.name}; });

TEST(Safetensors, WhatIsNoFileIsRefusedWithoutWaiting) {
    const TemporaryFolder folder;
    const std::filesystem::path pipe = folder.path() / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(TensorFile::open(pipe).error().code, Errc::denied);
    EXPECT_EQ(TensorFile::open(folder.path()).error().code, Errc::denied);
    EXPECT_EQ(TensorFile::open(folder.path() / "none").error().code, Errc::not_found);
    const std::filesystem::path path = folder.path() / "f";
    for (const std::string& bytes : {std::string{}, std::string(7, '\0'), std::string(8, '\xFF'),
                                     std::string(64, '\xFF'), file_of("{}", "x"), file_of("", ""),
                                     std::string{"PK\x03\x04 a zip, as torch.save writes"}}) {
        ASSERT_TRUE(write_file_atomic(path, bytes).has_value());
        const Result<TensorFile> file = TensorFile::open(path);
        ASSERT_FALSE(file.has_value());
        EXPECT_EQ(file.error().code, Errc::invalid);
        EXPECT_NE(file.error().message.find("not a safetensors file"), std::string::npos);
    }
}

// Damaged at random: never more than a refusal, or values that lie inside the file.
TEST(Safetensors, DamagedFilesAreRefusedOrRead) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "f";
    const std::string good = encode_safetensors(two_tensors(), {{"format", "pt"}});
    Random random{7};
    int refused = 0;
    for (int round = 0; round < 3'000; ++round) {
        std::string bad = good;
        for (std::uint32_t flips = 1 + random.below(4); flips > 0; --flips) {
            bad[random.below(static_cast<std::uint32_t>(bad.size()))] =
                static_cast<char>(random.below(256));
        }
        if (random.below(4) == 0) {
            bad.resize(random.below(static_cast<std::uint32_t>(bad.size())));
        }
        ASSERT_TRUE(replace_file(path, bad).has_value());
        const Result<TensorFile> file = TensorFile::open(path);
        refused += file ? 0 : 1;
        if (file) {
            for (const auto& [name, tensor] : file->entries()) {
                ASSERT_LE(tensor.end, bad.size());
                EXPECT_EQ(file->read(tensor).value().size(), tensor.end - tensor.begin);
            }
        }
    }
    EXPECT_GT(refused, 1'000);
}

TEST(Safetensors, AFileThatBecomesShorterIsNotReadBeyondItsEnd) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "f";
    ASSERT_TRUE(replace_file(path, encode_safetensors(two_tensors(), {})).has_value());
    const Result<TensorFile> file = TensorFile::open(path);
    ASSERT_TRUE(file.has_value());
    std::filesystem::resize_file(path, 40);
    EXPECT_EQ(file->read(file->entries().at("b")).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace lockstep
