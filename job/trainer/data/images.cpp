// Image files in one folder for each class, below train and val: the layout of PyTorch's ImageNet
// example and of torchvision.datasets.ImageFolder, whose classes are numbered by name, too.
#include "job/trainer/dataset.hpp"
#include "job/trainer/image_files.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Heads that are read before the training begins: of more, evenly spread ones. Each takes 50 µs, on
// a distant file system a millisecond.
constexpr std::size_t kHeadsChecked = 4'096;

// Of what torchvision takes, what is decoded here.
bool is_image(const fs::path& path) {
    std::string extension = path.extension().string();
    std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

// Names in `folder`, sorted: of folders, or of image files.
Result<std::vector<std::string>> names_in(const fs::path& folder, bool folders) {
    std::vector<std::string> out;
    std::error_code error;
    for (fs::directory_iterator at{folder, error}, end; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (folders ? at->is_directory(ignored)
                    : is_image(at->path()) && !at->is_directory(ignored)) {
            out.push_back(at->path().filename().string());
        }
    }
    if (error) {
        return fail(errno_error(folder.string(), error.value()));
    }
    std::sort(out.begin(), out.end());
    return out;
}

// The samples of `folder`, class by class. Those of `classes` that it lacks have none.
Result<SampleSet> image_folder(const fs::path& folder, const std::vector<std::string>& classes,
                               std::int64_t side, bool vary) {
    auto files = std::make_shared<ImageFiles>(folder, side, vary);
    std::vector<std::uint8_t> labels;
    for (std::size_t number = 0; number < classes.size(); ++number) {
        const Result<std::vector<std::string>> names = names_in(folder / classes[number], false);
        if (!names) {
            return fail(names.error());
        }
        for (const std::string& name : *names) {
            files->add(classes[number] + "/" + name);
            labels.push_back(static_cast<std::uint8_t>(number % 256));
            labels.push_back(static_cast<std::uint8_t>(number / 256));
        }
    }
    if (files->count() == 0) {
        return fail(Errc::invalid, folder.string() + ": no .jpg, .jpeg or .png in its folders");
    }
    const std::size_t step = (files->count() + kHeadsChecked - 1) / kHeadsChecked;
    for (std::size_t i = 0; i < files->count(); i += step) {
        if (Status checked = files->check(i); !checked) {
            return fail(std::move(checked).error());
        }
    }
    SampleSet set;
    set.count = static_cast<std::uint32_t>(files->count());
    set.input.type = ColumnType::scaled;
    set.input.shape = {side, side, 3};
    set.input.files = std::move(files);
    set.target.type = ColumnType::wide_index;
    set.target.bytes = std::make_shared<const std::vector<std::uint8_t>>(std::move(labels));
    set.target.stride = 2;
    return set;
}

}  // namespace

Result<Dataset> load_images(const TrainConfig& config) {
    const fs::path folder = config.dataset_path;
    const Result<std::vector<std::string>> classes = names_in(folder / "train", true);
    if (!classes) {
        return fail(classes.error());
    }
    if (classes->empty() || classes->size() > limits::kImageClasses) {
        return fail(Errc::invalid, (folder / "train").string() + ": has " +
                                       std::to_string(classes->size()) +
                                       " folders, must have one for each class");
    }
    const Result<std::vector<std::string>> tested = names_in(folder / "val", true);
    if (!tested) {
        return fail(tested.error());
    }
    if (*tested != *classes) {
        const auto differ =
            std::mismatch(classes->begin(), classes->end(), tested->begin(), tested->end());
        const std::string& name = differ.first == classes->end() ? *differ.second : *differ.first;
        return fail(Errc::invalid, folder.string() + ": train and val have different classes, \"" +
                                       name + "\" for one");
    }
    Dataset data;
    data.classes = static_cast<std::int64_t>(classes->size());
    for (const auto& [name, set, vary] :
         {std::tuple{"train", &data.train, config.augment}, {"val", &data.test, false}}) {
        Result<SampleSet> read = image_folder(folder / name, *classes, config.resize, vary);
        if (!read) {
            return fail(read.error());
        }
        *set = std::move(*read);
    }
    return data;
}

}  // namespace lockstep
