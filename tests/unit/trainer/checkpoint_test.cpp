#include "job/trainer/checkpoint.hpp"

#include "job/base/files.hpp"
#include "job/trainer/checkpoint_bytes.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

using test::TemporaryFolder;

Checkpoint sample(std::int64_t step) {
    Checkpoint out;
    out.step = step;
    out.epoch = 3;
    out.consumed = 640;
    out.ranks = 4;
    out.config_hash = std::string(64, 'a');
    out.parameters = {1.0F, -2.5F, std::numeric_limits<float>::infinity()};
    out.buffers = {0.125F};
    out.optimizer = {0.0F, 1e-38F, 3.0F, 4.0F};
    return out;
}

std::set<std::string> names(const std::filesystem::path& folder) {
    std::set<std::string> out;
    for (const auto& each : std::filesystem::directory_iterator{folder}) {
        out.insert(each.path().filename().string());
    }
    return out;
}

TEST(Checkpoint, WhatIsWrittenReadsBackBitForBit) {
    const Result<Checkpoint> got = decode_checkpoint(encode_checkpoint(sample(200)));
    ASSERT_TRUE(got.has_value()) << got.error().text();
    const Checkpoint want = sample(200);
    EXPECT_EQ(got->step, 200);
    EXPECT_EQ(got->epoch, 3);
    EXPECT_EQ(got->consumed, 640);
    EXPECT_EQ(got->ranks, 4);
    EXPECT_EQ(got->config_hash, want.config_hash);
    EXPECT_EQ(got->parameters, want.parameters);
    EXPECT_EQ(got->buffers, want.buffers);
    EXPECT_EQ(got->optimizer, want.optimizer);
}

TEST(Checkpoint, TheOptimizersOwnCountIsKeptWhereThereIsOne) {
    EXPECT_EQ(decode_checkpoint(encode_checkpoint(sample(200)))->optimizer_steps, -1);
    Checkpoint counted = sample(200);
    counted.optimizer_steps = 800;
    EXPECT_EQ(decode_checkpoint(encode_checkpoint(counted))->optimizer_steps, 800);
}

// The string is kept from one checkpoint to the next; it doubled at step 1000.
TEST(Checkpoint, OneMoreDigitInTheHeaderTakesNoMoreMemory) {
    const auto encode = [](std::int64_t step, std::string& bytes) {
        const CheckpointFile file = whole_file(sample(step));
        encode_file(file, file.slices, bytes);
        EXPECT_TRUE(decode_file(bytes).has_value());
    };
    std::string bytes;
    encode(999, bytes);
    const std::size_t room = bytes.capacity();
    encode(1000, bytes);
    EXPECT_EQ(bytes.capacity(), room);
    EXPECT_LT(room, bytes.size() + 2 * 4096);
}

TEST(Checkpoint, NoTruncationAndNoFlippedByteIsAccepted) {
    const std::string good = encode_checkpoint(sample(200));
    for (std::size_t size = 0; size < good.size(); ++size) {
        ASSERT_FALSE(decode_checkpoint(std::string_view{good}.substr(0, size)).has_value()) << size;
    }
    for (std::size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 1);
        ASSERT_FALSE(decode_checkpoint(bad).has_value()) << i;
    }
}

TEST(Checkpoint, TheNewestTwoAreKeptAndNothingElseIsTouched) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "ckpt";
    ASSERT_TRUE(write_checkpoint(path, sample(100)).has_value());
    ASSERT_TRUE(write_file_atomic(path / "notes.txt", "mine").has_value());
    ASSERT_TRUE(write_file_atomic(path / "step-00000150.ckpt.tmp.77", "torn").has_value());
    for (const std::int64_t step : {200, 300, 400}) {
        const Result<std::filesystem::path> put = write_checkpoint(path, sample(step));
        ASSERT_TRUE(put.has_value()) << put.error().text();
        EXPECT_EQ(put->filename(), checkpoint_name(step));
    }
    EXPECT_EQ(names(path),
              (std::set<std::string>{"notes.txt", "step-00000300.ckpt", "step-00000400.ckpt"}));
}

TEST(Checkpoint, TheLatestIsTheNewestThatReadsBack) {
    const TemporaryFolder folder;
    EXPECT_FALSE(latest_checkpoint(folder.path() / "none")->has_value());
    EXPECT_FALSE(latest_checkpoint(folder.path())->has_value());
    ASSERT_TRUE(write_checkpoint(folder.path(), sample(100)).has_value());
    ASSERT_TRUE(write_checkpoint(folder.path(), sample(200)).has_value());
    EXPECT_EQ((*latest_checkpoint(folder.path()))->checkpoint.step, 200);

    std::string torn = encode_checkpoint(sample(300));
    torn.resize(torn.size() / 2);
    ASSERT_TRUE(write_file_atomic(folder.path() / "step-00000300.ckpt", torn).has_value());
    ASSERT_TRUE(write_file_atomic(folder.path() / "step-00000400.ckpt", "").has_value());
    ASSERT_TRUE(write_file_atomic(folder.path() / "step-00000500.ckpt.tmp.1", "x").has_value());
    ASSERT_TRUE(
        write_file_atomic(folder.path() / "step-00000600.ckpt", encode_checkpoint(sample(100)))
            .has_value());
    const auto found = latest_checkpoint(folder.path());
    ASSERT_TRUE(found.has_value() && found->has_value());
    EXPECT_EQ((*found)->checkpoint.step, 200);
    EXPECT_EQ((*found)->path.filename(), "step-00000200.ckpt");
}

// A run that took it for empty would begin anew, beside checkpoints of days.
TEST(Checkpoint, AFolderThatCannotBeReadIsNotEmpty) {
    const TemporaryFolder folder;
    std::filesystem::create_directory_symlink("loop", folder / "loop");
    ASSERT_TRUE(write_file_atomic(folder / "file", "no folder").has_value());
    for (const auto& [name, reason] : {std::pair{"loop", std::errc::too_many_symbolic_link_levels},
                                       {"file", std::errc::not_a_directory}}) {
        const auto found = latest_checkpoint(folder / name);
        ASSERT_FALSE(found.has_value()) << name;
        EXPECT_EQ(found.error().message, "checkpoint: read the folder " + (folder / name).string() +
                                             ": " + std::make_error_code(reason).message());
    }
}

TEST(Checkpoint, OneWrittenBehindDamagedLaterOnesStays) {
    const TemporaryFolder folder;
    for (const char* name : {"step-00000800.ckpt", "step-00000900.ckpt"}) {
        ASSERT_TRUE(write_file_atomic(folder.path() / name, "damaged").has_value());
    }
    ASSERT_TRUE(write_checkpoint(folder.path(), sample(250)).has_value());
    EXPECT_EQ((*latest_checkpoint(folder.path()))->checkpoint.step, 250);
}

}  // namespace
}  // namespace lockstep
