// The bytes of one file, cut into samples of `context` bytes that are to be continued by one byte
// each; the last tenth is the test set.
#include "job/base/files.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// Samples of [begin, end): input is context bytes, target the same one byte later.
SampleSet text_samples(const std::shared_ptr<const std::vector<std::uint8_t>>& bytes,
                       std::size_t begin, std::size_t end, std::int64_t context) {
    const auto length = static_cast<std::size_t>(context);
    SampleSet set;
    set.count = static_cast<std::uint32_t>((end - begin - 1) / length);
    set.input = {ColumnType::index, {context}, bytes, begin, length};
    set.target = {ColumnType::index, {context}, bytes, begin + 1, length};
    return set;
}

}  // namespace

Result<Dataset> load_text(const TrainConfig& config) {
    const Result<std::string> read = read_file(config.dataset_path, limits::kTextFileBytes);
    LOCKSTEP_TRY(read);
    const auto context = static_cast<std::size_t>(config.context);
    const std::size_t least = 2 * (context + 1);
    const std::size_t test = std::max(read->size() / 10, context + 1);
    if (read->size() < least) {
        return fail(Errc::invalid, config.dataset_path + ": " + std::to_string(read->size()) +
                                       " bytes, must be at least " + std::to_string(least) +
                                       " for a context of " + std::to_string(context));
    }
    const auto bytes =
        std::make_shared<const std::vector<std::uint8_t>>(read->begin(), read->end());
    Dataset data;
    data.classes = kByteClasses;
    data.train = text_samples(bytes, 0, bytes->size() - test, config.context);
    data.test = text_samples(bytes, bytes->size() - test, bytes->size(), config.context);
    return data;
}

}  // namespace lockstep
