// CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, records of
// one label byte and 3 × 32 × 32 pixels, plane by plane.
// Source: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
#include "job/base/files.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kCifarSide = 32;
constexpr std::size_t kCifarPlane = kCifarSide * kCifarSide;
constexpr std::size_t kCifarChannels = 3;
constexpr std::size_t kCifarRecord = 1 + kCifarChannels * kCifarPlane;
constexpr std::uint8_t kCifarClasses = 10;

struct Records {
    std::vector<std::uint8_t> pixels;  // [count][height][width][channels]
    std::vector<std::uint8_t> labels;
};

Status append_records(const std::filesystem::path& path, Records& out) {
    const Result<std::string> bytes = read_file(path, limits::kCifarFileBytes);
    LOCKSTEP_TRY(bytes);
    const auto wrong = [&](const std::string& what) {
        return fail(Errc::invalid, path.string() + ": " + what);
    };
    if (bytes->empty() || bytes->size() % kCifarRecord != 0) {
        return wrong("truncated: " + std::to_string(bytes->size()) +
                     " bytes, must be a multiple of " + std::to_string(kCifarRecord));
    }
    const auto* record = reinterpret_cast<const std::uint8_t*>(bytes->data());
    for (std::size_t i = 0; i < bytes->size() / kCifarRecord; ++i, record += kCifarRecord) {
        if (record[0] >= kCifarClasses) {
            return wrong("record " + std::to_string(i) + ": label " + std::to_string(record[0]) +
                         ", must be 0..9");
        }
        out.labels.push_back(record[0]);
        for (std::size_t pixel = 0; pixel < kCifarPlane; ++pixel) {
            for (std::size_t channel = 0; channel < kCifarChannels; ++channel) {
                out.pixels.push_back(record[1 + channel * kCifarPlane + pixel]);
            }
        }
    }
    return {};
}

SampleSet cifar_samples(Records records) {
    return image_samples({kCifarSide, kCifarSide, kCifarChannels}, std::move(records.pixels),
                         std::move(records.labels));
}

}  // namespace

Result<Dataset> load_cifar10(const TrainConfig& config) {
    const std::filesystem::path folder = config.dataset_path;
    Records train;
    for (int part = 1; part <= 5; ++part) {
        const auto path = folder / ("data_batch_" + std::to_string(part) + ".bin");
        LOCKSTEP_TRY(append_records(path, train));
    }
    Records test;
    LOCKSTEP_TRY(append_records(folder / "test_batch.bin", test));
    Dataset data;
    data.train = cifar_samples(std::move(train));
    data.test = cifar_samples(std::move(test));
    return data;
}

}  // namespace lockstep
