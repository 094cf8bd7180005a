// MNIST's four IDX files, packed by gzip or not; the generated digits are kept as such, too.
#include "job/trainer/dataset.hpp"
#include "job/trainer/digits.hpp"
#include "job/trainer/idx_file.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint8_t kDigitClasses = 10;

// The file, or the same with ".gz" if only that is there.
std::filesystem::path idx_path(const std::filesystem::path& folder, const std::string& name) {
    std::error_code error;
    std::filesystem::path packed = folder / (name + ".gz");
    const bool only_packed =
        !std::filesystem::exists(folder / name, error) && std::filesystem::exists(packed, error);
    return only_packed ? packed : folder / name;
}

Result<Dataset> load_idx_folder(const std::filesystem::path& folder) {
    Dataset data;
    for (const auto& [prefix, set] : {std::pair{"train", &data.train}, {"t10k", &data.test}}) {
        Result<SampleSet> loaded = load_idx_images(folder, prefix);
        LOCKSTEP_TRY(loaded);
        const auto& shape = loaded->input.shape;
        if (shape[0] != kDigitSide || shape[1] != kDigitSide) {
            return fail(Errc::invalid, folder.string() + ": images of " + std::to_string(shape[0]) +
                                           " × " + std::to_string(shape[1]) + ", must be 28 × 28");
        }
        *set = std::move(*loaded);
    }
    return data;
}

}  // namespace

Result<SampleSet> load_idx_images(const std::filesystem::path& folder, const std::string& prefix) {
    Result<IdxFile> images = read_idx(idx_path(folder, prefix + "-images-idx3-ubyte"), 3);
    LOCKSTEP_TRY(images);
    const std::filesystem::path labels_path = idx_path(folder, prefix + "-labels-idx1-ubyte");
    Result<IdxFile> labels = read_idx(labels_path, 1);
    LOCKSTEP_TRY(labels);
    if (labels->sizes[0] != images->sizes[0]) {
        return fail(Errc::invalid, labels_path.string() + ": " + std::to_string(labels->sizes[0]) +
                                       " labels for " + std::to_string(images->sizes[0]) +
                                       " images");
    }
    const auto highest = *std::max_element(labels->values.begin(), labels->values.end());
    if (highest >= kDigitClasses) {
        return fail(Errc::invalid,
                    labels_path.string() + ": label " + std::to_string(highest) + ", must be 0..9");
    }
    return image_samples({images->sizes[1], images->sizes[2], 1}, std::move(images->values),
                         std::move(labels->values));
}

Result<Dataset> load_mnist(const TrainConfig& config) {
    return load_idx_folder(config.dataset_path);
}

Result<Dataset> load_digits(const TrainConfig& config, const std::filesystem::path& cache) {
    const auto train = static_cast<std::uint32_t>(config.train_samples);
    const auto test = static_cast<std::uint32_t>(config.test_samples);
    std::filesystem::path folder = config.dataset_path;
    if (!folder.empty()) {
        LOCKSTEP_TRY(may_make_digits(folder, train, test));
    } else {
        // The sizes are in the name: jobs with different sizes share a cache.
        folder = cache / ("digits-" + std::to_string(config.train_samples) + "-" +
                          std::to_string(config.test_samples));
    }
    const Status made = make_digits(folder, train, test);
    return made ? load_idx_folder(folder) : fail(made.error());
}

}  // namespace lockstep
