// The images a training run uses, whole in memory. Plain values; read-only after loading, so any
// thread may read.
#pragma once

#include "job/base/result.hpp"
#include "job/model/train_config.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

struct ImageSet {
    std::uint32_t count = 0;
    std::uint32_t rows = 0;
    std::uint32_t columns = 0;
    std::vector<std::uint8_t> pixels;  // [count][rows][columns], 0..255
    std::vector<std::uint8_t> labels;  // [count], 0..9

    std::size_t image_size() const { return std::size_t{rows} * columns; }
};

struct Dataset {
    ImageSet train;
    ImageSet test;
};

inline constexpr std::int64_t kClasses = 10;

// The two IDX files "<prefix>-images-idx3-ubyte" and "<prefix>-labels-idx1-ubyte" of `folder`.
// invalid: as read_idx(), or different counts, or a label beyond 9.
Result<ImageSet> load_images(const std::filesystem::path& folder, const std::string& prefix);

// What `config` names; digits are made first if they are not there. `cache` is the folder for
// generated data when the configuration names none. invalid: also images that are not 28 × 28.
Result<Dataset> load_dataset(const TrainConfig& config, const std::filesystem::path& cache);

}  // namespace lockstep
