#include "job/cli/snapshot.hpp"

#include "job/base/files.hpp"
#include "job/base/ids.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/cli/access.hpp"
#include "job/cli/child.hpp"
#include "job/cli/cli_limits.hpp"

#include <algorithm>
#include <chrono>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

Result<std::string> git(const std::string& directory, std::vector<std::string> words) {
    words.insert(words.begin(), "git");
    auto said = output_of(words, directory, limits::kGitPatience);
    if (!said && said.error().code == Errc::not_found) {
        return fail(Errc::invalid, "--snapshot: there is no git here");
    }
    if (!said) {
        return fail(std::move(said.error()).in("--snapshot"));
    }
    return said;
}

std::string size_text(std::uintmax_t bytes) {
    if (bytes < 1U << 20U) {
        return std::to_string((bytes + 1023) >> 10U) + " KiB";
    }
    return std::to_string(bytes >> 20U) + "." + std::to_string((bytes % (1U << 20U)) * 10 >> 20U) +
           " MiB";
}

struct Copied {
    std::size_t files = 0;
    std::uintmax_t bytes = 0;
};

// Links stay links; a file that was deleted and still is in the index stays away.
Status copy_one(const fs::path& from, const fs::path& to, Copied& copied) {
    std::error_code ec;
    const auto kind = fs::symlink_status(from, ec).type();
    if (ec || (kind != fs::file_type::regular && kind != fs::file_type::symlink)) {
        return {};
    }
    fs::create_directories(to.parent_path(), ec);
    if (kind == fs::file_type::symlink) {
        fs::copy_symlink(from, to, ec);
    } else {
        copied.bytes += fs::file_size(from, ec);
        if (copied.bytes > limits::kSnapshotBytes) {
            return fail(Errc::invalid, "--snapshot: git tracks more than " +
                                           std::to_string(limits::kSnapshotBytes >> 20U) +
                                           " MiB here");
        }
        fs::copy_file(from, to, ec);
    }
    if (ec) {
        return fail(Errc::invalid, "--snapshot: " + from.string() + ": " + ec.message());
    }
    ++copied.files;
    return {};
}

void warn_of_untracked(const std::string& list, std::vector<std::string>& warnings) {
    const auto names = split(list, '\0');
    std::string some;
    std::size_t count = 0;
    for (const std::string& name : names) {
        if (!name.empty() && ++count <= 3) {
            some += (some.empty() ? "" : ", ") + printable(name);
        }
    }
    if (count > 0) {
        warnings.push_back("the snapshot has only what git tracks, so not " + some +
                           (count > 3 ? " and " + std::to_string(count - 3) + " more" : "") +
                           ": git add them");
    }
}

}  // namespace

std::filesystem::path snapshots_folder(const Options& options) {
    return fs::path{data_directory(options)} / "snapshots";
}

Result<Snapshot> take_snapshot(const std::string& directory, const std::filesystem::path& into) {
    const auto root = git(directory, {"rev-parse", "--show-toplevel"});
    LOCKSTEP_TRY(root);
    const fs::path top{std::string(trim(*root))};
    const auto inside = git(directory, {"rev-parse", "--show-prefix"});
    const auto files = git(top.string(), {"ls-files", "-z", "--cached", "--recurse-submodules"});
    const auto changed = git(top.string(), {"status", "--porcelain", "--untracked-files=no"});
    const auto others = git(top.string(), {"ls-files", "-z", "--others", "--exclude-standard"});
    for (const auto* said : {&inside, &files, &changed, &others}) {
        if (!*said) {
            return fail(said->error());
        }
    }
    const auto commit = git(top.string(), {"rev-parse", "HEAD"});  // none before the first one
    const std::string hash = commit ? std::string(trim(*commit)) : "none";
    Snapshot out;
    const fs::path folder = into / (hash.substr(0, 12) + "-" + random_secret().substr(0, 12));
    if (Status made = make_private_directories(folder); !made) {
        return fail(made.error().in("--snapshot"));
    }
    Copied copied;
    std::string last;
    for (const std::string& name : split(*files, '\0')) {
        if (name.empty() || name == last) {
            continue;  // of a file with a conflict git names every side
        }
        last = name;
        if (Status one = copy_one(top / name, folder / name, copied); !one) {
            std::error_code ec;
            fs::remove_all(folder, ec);
            return fail(one.error());
        }
    }
    const bool dirty = !trim(*changed).empty();
    const fs::path work = (folder / std::string(trim(*inside))).lexically_normal();
    std::error_code ec;
    fs::create_directories(work, ec);
    out.directory = work.string();
    while (out.directory.size() > 1 && out.directory.back() == '/') {
        out.directory.pop_back();
    }
    out.labels = Json::object();
    out.labels["git-commit"] = hash;
    out.labels["git-dirty"] = dirty ? "true" : "false";
    out.summary = "commit " + hash.substr(0, 12) + (dirty ? " with changes" : "") + ", " +
                  std::to_string(copied.files) + " files, " + size_text(copied.bytes);
    warn_of_untracked(*others, out.warnings);
    return out;
}

}  // namespace lockstep::cli
