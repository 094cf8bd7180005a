#include "job/trainer/dataset.hpp"

#include "job/trainer/digits.hpp"
#include "job/trainer/idx_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {

Result<ImageSet> load_images(const std::filesystem::path& folder, const std::string& prefix) {
    Result<IdxFile> images = read_idx(folder / (prefix + "-images-idx3-ubyte"), 3);
    if (!images) {
        return fail(std::move(images).error());
    }
    const std::filesystem::path labels_path = folder / (prefix + "-labels-idx1-ubyte");
    Result<IdxFile> labels = read_idx(labels_path, 1);
    if (!labels) {
        return fail(std::move(labels).error());
    }
    if (labels->sizes[0] != images->sizes[0]) {
        return fail(Errc::invalid, labels_path.string() + ": " + std::to_string(labels->sizes[0]) +
                                       " labels for " + std::to_string(images->sizes[0]) +
                                       " images");
    }
    const auto highest = *std::max_element(labels->values.begin(), labels->values.end());
    if (highest >= kClasses) {
        return fail(Errc::invalid,
                    labels_path.string() + ": label " + std::to_string(highest) + ", must be 0..9");
    }
    ImageSet set;
    set.count = images->sizes[0];
    set.rows = images->sizes[1];
    set.columns = images->sizes[2];
    set.pixels = std::move(images->values);
    set.labels = std::move(labels->values);
    return set;
}

Result<Dataset> load_dataset(const TrainConfig& config, const std::filesystem::path& cache) {
    std::filesystem::path folder = config.dataset_path;
    if (config.dataset == TrainDataset::digits) {
        if (folder.empty()) {
            // The sizes are in the name: jobs with different sizes share a cache.
            folder = cache / ("digits-" + std::to_string(config.train_samples) + "-" +
                              std::to_string(config.test_samples));
        }
        const Status made = make_digits(folder, static_cast<std::uint32_t>(config.train_samples),
                                        static_cast<std::uint32_t>(config.test_samples));
        if (!made) {
            return fail(made.error().in("digits"));
        }
    }
    Dataset data;
    for (const auto& [prefix, set] : {std::pair{"train", &data.train}, {"t10k", &data.test}}) {
        Result<ImageSet> loaded = load_images(folder, prefix);
        if (!loaded) {
            return fail(std::move(loaded).error().in(to_string(config.dataset)));
        }
        if (loaded->rows != kDigitSide || loaded->columns != kDigitSide) {
            return fail(Errc::invalid, folder.string() + ": images of " +
                                           std::to_string(loaded->rows) + " × " +
                                           std::to_string(loaded->columns) + ", must be 28 × 28");
        }
        *set = std::move(*loaded);
    }
    return data;
}

}  // namespace lockstep
