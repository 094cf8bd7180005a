// Versions of what the ranks load, found without loading it.
#include "job/agent/preflight/preflight_facts.hpp"
#include "job/agent/preflight/run_path.hpp"
#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/base/version.hpp"
#include "job/model/spec/framework.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;
constexpr std::size_t kVersionBytes = 1U << 20U;

std::string text_of_file(const fs::path& path) {
    const auto text = read_file(path, kVersionBytes);
    return text ? std::string{trim(*text)} : std::string{};
}

// The job's own value counts.
std::string variable(const JobSpec& spec, const Environment& environment, const std::string& name) {
    const auto own = spec.environment.find(name);
    if (own != spec.environment.end()) {
        return own->second;
    }
    const auto inherited = environment.find(name);
    return inherited == environment.end() ? "" : inherited->second;
}

// The first word of digits and dots: "… Kernel Module  535.104.05  Sat Aug …".
std::string first_number(std::string_view text) {
    for (const std::string& word : split(text, ' ')) {
        const bool digits = word.find_first_not_of("0123456789.") == std::string::npos;
        if (digits && std::count(word.begin(), word.end(), '.') >= 1) {
            return word;
        }
    }
    return "";
}

std::string driver_version(const fs::path& root) {
    const std::string text = text_of_file(root / "proc/driver/nvidia/version");
    return first_number(std::string_view{text}.substr(0, text.find('\n')));
}

std::string cuda_version(const fs::path& root) {
    const auto json = parse_json(text_of_file(root / "usr/local/cuda/version.json"));
    if (json && json->is_object() && json->contains("cuda") && (*json)["cuda"].is_object() &&
        (*json)["cuda"].contains("version") && (*json)["cuda"]["version"].is_string()) {
        return (*json)["cuda"]["version"].get<std::string>();
    }
    return first_number(text_of_file(root / "usr/local/cuda/version.txt"));
}

// The program that a rank starts with, "" if it is not found.
fs::path program_of(const JobSpec& spec, const Environment& environment) {
    if (spec.command.empty()) {
        return {};
    }
    const std::string& name = spec.command.front();
    if (name.find('/') != std::string::npos) {
        return fs::path{spec.working_directory} / name;
    }
    for (const std::string& folder : split(variable(spec, environment, "PATH"), ':')) {
        const fs::path here = fs::path{folder} / name;
        if (!folder.empty() && ::access(here.c_str(), X_OK) == 0) {
            return here;
        }
    }
    return {};
}

// Where the Python beside that program keeps its packages: of a virtual environment, a conda
// environment or the system.
std::vector<fs::path> package_folders(const fs::path& program) {
    std::vector<fs::path> out;
    if (program.empty()) {
        return out;
    }
    const fs::path prefix = program.parent_path().parent_path();
    for (const fs::path& lib : {prefix / "lib", prefix / "local/lib"}) {
        std::error_code ec;
        // A file server may fail in the middle of a folder: no exception for that.
        for (fs::directory_iterator at{lib, ec}, end; !ec && at != end; at.increment(ec)) {
            if (at->path().filename().string().starts_with("python3")) {
                out.push_back(at->path() / "site-packages");
                out.push_back(at->path() / "dist-packages");
            }
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

// What training frameworks are called in pip's lists, and here. Of several of one key that a folder
// has the first of this list counts: lightning brings pytorch_lightning, torch and jax bring NCCL.
const std::vector<FrameworkPackage>& known_packages() {
    static const std::vector<FrameworkPackage> kPackages = [] {
        std::vector<FrameworkPackage> out;
        for (std::size_t i = 0; i < kFrameworkCount; ++i) {
            const auto packages = traits_of(static_cast<Framework>(i)).packages;
            out.insert(out.end(), packages.begin(), packages.end());
        }
        out.insert(out.end(), {{"transformers", "transformers"},
                               {"nvidia_nccl_cu12", "nccl"},
                               {"nvidia_nccl_cu13", "nccl"},
                               {"nvidia_nccl_cu11", "nccl"}});
        return out;
    }();
    return kPackages;
}

// "torch-2.1.0.dist-info", "torch-1.13.1.egg-info" → torch 2.1.0; the names of a package's own
// description. Every folder is read once: it may be a file server's. The first folder counts.
std::map<std::string, std::string> package_versions(const std::vector<fs::path>& folders) {
    const std::vector<FrameworkPackage>& packages = known_packages();
    std::map<std::string, std::string> out;
    for (const fs::path& folder : folders) {
        std::error_code ec;
        // Which of the list it is, and its version: a folder's order differs between nodes.
        std::map<std::string_view, std::pair<std::ptrdiff_t, std::string>> best;
        for (fs::directory_iterator at{folder, ec}, last; !ec && at != last; at.increment(ec)) {
            const std::string name = at->path().filename().string();
            const auto dash = name.find('-');
            const auto end = std::min(name.find(".dist-info"), name.find(".egg-info"));
            if (dash == std::string::npos || end == std::string::npos || end <= dash) {
                continue;
            }
            const auto package =
                std::find_if(packages.begin(), packages.end(), [&](const FrameworkPackage& one) {
                    return one.name == std::string_view{name}.substr(0, dash);
                });
            if (package != packages.end()) {
                std::pair found{package - packages.begin(), name.substr(dash + 1, end - dash - 1)};
                const auto [known, added] = best.try_emplace(package->key, found);
                if (!added && found < known->second) {
                    known->second = std::move(found);
                }
            }
        }
        for (auto& [key, found] : best) {
            out.try_emplace(std::string{key}, std::move(found.second));
        }
    }
    return out;
}

// What libnccl.so.2 leads to: libnccl.so.2.18.3; a wheel's library does not say it, but the package
// beside it. `folders` are looked into first, in their order.
std::string nccl_version(const fs::path& root, std::vector<fs::path> folders) {
    for (const char* folder : {"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
                               "usr/local/cuda/lib64", "usr/lib64", "usr/lib"}) {
        folders.push_back(root / folder);
    }
    for (const fs::path& folder : folders) {
        std::error_code ec;
        const fs::path real = fs::canonical(folder / "libnccl.so.2", ec);
        if (ec) {
            continue;
        }
        constexpr std::string_view kStem = "libnccl.so.";
        const std::string name = real.filename().string();
        const fs::path package = real.parent_path().parent_path();  // …/site-packages/nvidia/nccl
        if (package.filename() == "nccl" && package.parent_path().filename() == "nvidia") {
            return package_versions({package.parent_path().parent_path()})["nccl"];
        }
        if (name.starts_with(kStem)) {
            return name.substr(kStem.size());
        }
    }
    return "";
}

std::vector<fs::path> folders_of(const std::string& search) {
    std::vector<fs::path> out;
    for (const std::string& folder : split(search, ':')) {
        if (!folder.empty()) {
            out.emplace_back(folder);
        }
    }
    return out;
}

// Of lockstep-train, which is linked with Debian's LibTorch or with that of PyTorch's wheel. It
// loads the NCCL that libtorch_cuda.so brings into the process, or else the one that the loader
// finds for itself (job/collective/nccl_library.cpp).
std::map<std::string, std::string> trainer_versions(const fs::path& root, const fs::path& program,
                                                    const std::string& search) {
    const std::vector<fs::path> environment = folders_of(search);
    std::map<std::string, std::string> out;
    std::vector<fs::path> folders;
    const auto add = [&](const RunPath& path, bool before) {
        if (path.before_environment == before) {
            folders.insert(folders.end(), path.folders.begin(), path.folders.end());
        }
    };
    std::error_code missing;
    const RunPath own = run_path_of(fs::canonical(program, missing));
    RunPath torchs;
    for (const fs::path& folder : own.folders) {
        std::error_code ec;
        if (fs::exists(folder / "libtorch_cuda.so", ec)) {
            torchs = run_path_of(folder / "libtorch_cuda.so");
            auto found = package_versions({folder.parent_path().parent_path()});
            if (found.count("torch") != 0) {
                out["torch"] = found["torch"];
            }
            break;
        }
    }
    add(torchs, true);
    add(own, true);
    folders.insert(folders.end(), environment.begin(), environment.end());
    add(torchs, false);
    add(own, false);
    out["nccl"] = nccl_version(root, std::move(folders));
    return out;
}

// The commit that is checked out in the folder or above it.
std::string commit_of(fs::path folder) {
    for (int up = 0; up < 8 && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
        fs::path git = folder / ".git";
        std::error_code ec;
        if (!fs::exists(git, ec)) {
            continue;
        }
        if (fs::is_regular_file(git, ec)) {  // of a worktree: "gitdir: /where/it/is"
            const std::string text = text_of_file(git);
            git = text.starts_with("gitdir: ") ? folder / text.substr(8) : git;
        }
        const std::string head = text_of_file(git / "HEAD");
        if (!head.starts_with("ref: ")) {
            return head.substr(0, 40);
        }
        const std::string name = head.substr(5);
        const std::string common = text_of_file(git / "commondir");
        const fs::path shared = common.empty() ? git : git / common;
        if (std::string commit = text_of_file(shared / name); !commit.empty()) {
            return commit.substr(0, 40);
        }
        for (const std::string& line : split(text_of_file(shared / "packed-refs"), '\n')) {
            if (line.size() > 41 && line.substr(41) == name) {
                return line.substr(0, 40);
            }
        }
        return "";
    }
    return "";
}

// An image file by its size and the first 64 KiB, which hold its unique header (SIF).
std::string image_digest(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    std::string head(64U << 10U, '\0');
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
    std::error_code ec;
    const auto size = fs::file_size(path, ec);
    return head.empty() || ec ? "" : sha256_hex(head + std::to_string(size)).substr(0, 16);
}

}  // namespace

std::string look_at_versions(const std::filesystem::path& root, const JobSpec& spec,
                             const std::map<std::string, std::string>& environment,
                             const std::filesystem::path& train_program) {
    std::map<std::string, std::string> found;
    found["lockstep"] = kVersion;
    found["driver"] = driver_version(root);
    found["cuda"] = cuda_version(root);
    const bool own = spec.container.runtime == ContainerRuntime::apptainer;
    // In the container there are others.
    if (!own) {
        const std::string search = variable(spec, environment, "LD_LIBRARY_PATH");
        found.merge(spec.framework == Framework::native && spec.command.empty()
                        ? trainer_versions(root, train_program, search)
                        : package_versions(package_folders(program_of(spec, environment))));
        // A wheel's library does not say its version, and goes before all others.
        if (variable(spec, environment, "LD_PRELOAD").find("libnccl.so") != std::string::npos) {
            found["nccl"] = "";
        } else if (found.count("nccl") == 0) {
            found["nccl"] = nccl_version(root, folders_of(search));
        }
    } else if (spec.container.image.starts_with('/')) {
        found["container"] = image_digest(spec.container.image);
    }
    if (!spec.working_directory.empty()) {
        found["code"] = commit_of(spec.working_directory);
    }
    Json out = Json::object();
    for (const auto& [name, value] : found) {
        if (!value.empty()) {
            out[name] = value;
        }
    }
    return dump_json(out);
}

}  // namespace lockstep
