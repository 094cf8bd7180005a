// The samples a training run uses, as two typed columns: what the model reads and what it is to
// answer. Whole in memory, but for images that stay in their files. Plain values; read-only after
// loading, so any thread may read.
#pragma once

#include "job/base/result.hpp"
#include "job/model/spec/train_config.hpp"
#include "job/trainer/image_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// What the stored bytes of a column become in a batch.
enum class ColumnType {
    scaled,      // byte / 255 as a float
    index,       // the byte as a 64-bit integer: a class, a token
    wide_index,  // the same of two bytes, the lower one first
    answer,      // as index, but 0 becomes kNoAnswer
    number,      // the bytes of a float are one
};

// What a batch has of it: floats, or 64-bit integers.
inline bool has_floats(ColumnType type) {
    return type == ColumnType::scaled || type == ColumnType::number;
}

// A target that is not asked for and counts for nothing; LibTorch's ignore_index.
inline constexpr std::int64_t kNoAnswer = -100;
// Classes of a data set of bytes.
inline constexpr std::int64_t kByteClasses = 256;

// One value of `shape` for each sample; sample i begins at byte offset + i · stride. Columns may
// share their bytes and samples may overlap.
struct Column {
    ColumnType type = ColumnType::scaled;
    // Of one sample. Images: height, width, channels. Text: length. A class: nothing.
    std::vector<std::int64_t> shape;
    std::shared_ptr<const std::vector<std::uint8_t>> bytes;
    std::size_t offset = 0;
    std::size_t stride = 0;
    // Images that the loader resizes: height and width as they are stored; 0 = as in `shape`.
    std::int64_t stored_height = 0;
    std::int64_t stored_width = 0;
    // Instead of `bytes`, scaled.
    std::shared_ptr<const ImageFiles> files = nullptr;

    // Elements of one sample.
    std::size_t elements() const;
    const std::uint8_t* sample(std::size_t index) const {
        return bytes->data() + offset + index * stride;
    }
};

struct SampleSet {
    std::uint32_t count = 0;
    Column input;
    Column target;
};

// A column of a table. In batches it has the mean 0 and the deviation 1 over the training rows;
// what it was is value · deviation + mean.
struct TableColumn {
    std::string name;  // of the line of names, or the column's number
    double mean = 0.0;
    double deviation = 1.0;
};

struct Dataset {
    SampleSet train;
    SampleSet test;
    std::int64_t classes = 10;              // targets are 0..classes − 1; 1: they are numbers
    std::vector<TableColumn> columns = {};  // of a table; the last one is the target's
};

// `count` images and their classes, both packed.
SampleSet image_samples(std::vector<std::int64_t> shape, std::vector<std::uint8_t> pixels,
                        std::vector<std::uint8_t> labels);

// Batches of `set` will have images of side × side pixels.
void resize_images(SampleSet& set, std::int64_t side);

// What `config` names; digits are made first if they are not there. `cache` is the folder for
// generated data when the configuration names none. not_found, invalid: a file is missing,
// truncated or something else than it should be; the message names it.
Result<Dataset> load_dataset(const TrainConfig& config, const std::filesystem::path& cache);

// One file in data/ for each.
Result<Dataset> load_digits(const TrainConfig& config, const std::filesystem::path& cache);
Result<Dataset> load_mnist(const TrainConfig& config);
Result<Dataset> load_cifar10(const TrainConfig& config);
Result<Dataset> load_images(const TrainConfig& config);
Result<Dataset> load_text(const TrainConfig& config);
Result<Dataset> load_pairs(const TrainConfig& config);
Result<Dataset> load_table(const TrainConfig& config);

// MNIST's files in `folder`: "<prefix>-images-idx3-ubyte" and "<prefix>-labels-idx1-ubyte", or the
// same with ".gz". invalid: as read_idx(), or different counts, or a label beyond 9.
Result<SampleSet> load_idx_images(const std::filesystem::path& folder, const std::string& prefix);

}  // namespace lockstep
