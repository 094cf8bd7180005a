#include "job/trainer/dataset.hpp"

#include <functional>
#include <numeric>
#include <utility>

namespace lockstep {

std::size_t Column::elements() const {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{}));
}

SampleSet image_samples(std::vector<std::int64_t> shape, std::vector<std::uint8_t> pixels,
                        std::vector<std::uint8_t> labels) {
    using Bytes = const std::vector<std::uint8_t>;
    SampleSet set;
    set.count = static_cast<std::uint32_t>(labels.size());
    set.input.type = ColumnType::scaled;
    set.input.shape = std::move(shape);
    set.input.bytes = std::make_shared<Bytes>(std::move(pixels));
    set.input.stride = set.input.elements();
    set.target.type = ColumnType::index;
    set.target.bytes = std::make_shared<Bytes>(std::move(labels));
    set.target.stride = 1;
    return set;
}

void resize_images(SampleSet& set, std::int64_t side) {
    std::vector<std::int64_t>& shape = set.input.shape;
    set.input.stored_height = shape[0];
    set.input.stored_width = shape[1];
    shape[0] = shape[1] = side;
}

Result<Dataset> load_dataset(const TrainConfig& config, const std::filesystem::path& cache) {
    const auto load = [&]() -> Result<Dataset> {
        switch (config.dataset) {
            case TrainDataset::digits:
                return load_digits(config, cache);
            case TrainDataset::mnist:
                return load_mnist(config);
            case TrainDataset::cifar10:
                return load_cifar10(config);
            case TrainDataset::images:
                return load_images(config);
            case TrainDataset::text:
                return load_text(config);
            case TrainDataset::pairs:
                return load_pairs(config);
            case TrainDataset::table:
                return load_table(config);
        }
        return fail(Errc::internal, "no such data set");
    };
    Result<Dataset> data = load();
    if (!data) {
        return fail(std::move(data).error().in(to_string(config.dataset)));
    }
    if (config.resize > 0 && !data->train.input.files) {
        resize_images(data->train, config.resize);
        resize_images(data->test, config.resize);
    }
    return data;
}

}  // namespace lockstep
