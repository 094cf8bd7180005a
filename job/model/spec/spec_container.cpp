#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kRuntimes{"", "pyxis", "apptainer"};
static_assert(is_count_of<ContainerRuntime, kRuntimes.size()>());

bool only(std::string_view text, std::string_view also) {
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               also.find(c) != std::string_view::npos;
    });
}

// Stands in a batch script and in lists that end at ':' and ','.
bool is_plain_path(std::string_view path) {
    return path.size() > 1 && path.front() == '/' && only(path, "/_.+@-");
}

// docker://…, nvcr.io#nvidia/pytorch:24.01, /images/train.sif
bool is_image(std::string_view text) {
    return !text.empty() && text.size() <= limits::kPathBytes && text.front() != '-' &&
           only(text, "/_.+@:#-");
}

// SOURCE:DESTINATION[:ro|:rw]
bool is_mount(std::string_view text) {
    const auto first = text.find(':');
    if (first == std::string_view::npos) {
        return false;
    }
    std::string_view target = text.substr(first + 1);
    if (const auto second = target.find(':'); second != std::string_view::npos) {
        const auto mode = target.substr(second + 1);
        target = target.substr(0, second);
        if (mode != "ro" && mode != "rw") {
            return false;
        }
    }
    return is_plain_path(text.substr(0, first)) && is_plain_path(target);
}

}  // namespace

void read_container(ObjectReader& parent, JobSpec& spec, std::vector<FieldError>& errors) {
    const Json* json = parent.raw("container");
    if (json == nullptr || (json->is_object() && json->empty())) {
        return;
    }
    ObjectReader in{*json, parent.pointer("container"), errors};
    ContainerSpec& out = spec.container;
    std::size_t runtime = 0;
    in.word("runtime", runtime, {kRuntimes.begin() + 1, kRuntimes.end()});
    out.runtime = static_cast<ContainerRuntime>(runtime + 1);
    if (!in.has("runtime")) {
        in.error("runtime", "is required: pyxis or apptainer");
    }
    in.string("image", out.image, limits::kPathBytes);
    if (!is_image(out.image)) {
        in.error("image", "must name an image: letters, digits and / _ . + @ : # -");
    }
    in.strings("mounts", out.mounts, limits::kMounts, limits::kPathBytes);
    for (std::size_t i = 0; i < out.mounts.size(); ++i) {
        if (!is_mount(out.mounts[i])) {
            errors.push_back({in.pointer("mounts") + "/" + std::to_string(i),
                              "must be /source:/destination, with :ro or :rw behind it or nothing; "
                              "paths of letters, digits and / _ . + @ -"});
        }
    }
    in.finish();
    if (spec.framework == Framework::native) {
        errors.push_back({in.pointer("runtime"),
                          "has no effect with framework native: Lockstep's own trainer runs on the "
                          "node itself"});
    }
    if (spec.launch == Launch::task) {
        errors.push_back({in.pointer("runtime"), "launch task starts no containers yet"});
    }
    for (const auto& [path, pointer] :
         {std::pair{spec.working_directory, "/working_directory"},
          std::pair{spec.checkpoint.directory, "/checkpoint/directory"}}) {
        if (!path.empty() && !is_plain_path(path)) {
            errors.push_back({pointer, "with a container: letters, digits and / _ . + @ - only"});
        }
    }
}

std::string_view to_string(ContainerRuntime runtime) {
    return kRuntimes[static_cast<std::size_t>(runtime)];
}

Json to_json(const ContainerSpec& container) {
    Json out = Json::object();
    if (container.runtime != ContainerRuntime::none) {
        out["runtime"] = to_string(container.runtime);
        out["image"] = container.image;
        if (!container.mounts.empty()) {
            out["mounts"] = container.mounts;
        }
    }
    return out;
}

}  // namespace lockstep
