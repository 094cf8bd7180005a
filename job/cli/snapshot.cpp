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
#include <utility>

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

// The caller's work tree, as git describes it.
struct WorkTree {
    fs::path top;
    std::string inside;              // the caller's folder within it
    std::vector<std::string> files;  // tracked, each once
    std::string others;              // neither tracked nor ignored
    std::string hash;
    bool dirty = false;
};

Result<WorkTree> look_at(const std::string& directory) {
    WorkTree tree;
    const auto root = git(directory, {"rev-parse", "--show-toplevel"});
    LOCKSTEP_TRY(root);
    tree.top = std::string(trim(*root));
    const std::string top = tree.top.string();
    const auto inside = git(directory, {"rev-parse", "--show-prefix"});
    const auto files = git(top, {"ls-files", "-z", "--cached", "--recurse-submodules"});
    const auto changed = git(top, {"status", "--porcelain", "--untracked-files=no"});
    const auto others = git(top, {"ls-files", "-z", "--others", "--exclude-standard"});
    for (const auto* said : {&inside, &files, &changed, &others}) {
        if (!*said) {
            return fail(said->error());
        }
    }
    const auto commit = git(top, {"rev-parse", "HEAD"});  // none before the first one
    tree.hash = commit ? std::string(trim(*commit)) : "none";
    tree.inside = trim(*inside);
    tree.others = *others;
    tree.dirty = !trim(*changed).empty();
    for (const std::string& name : split(*files, '\0')) {
        // Of a file with a conflict git names every side.
        if (!name.empty() && (tree.files.empty() || name != tree.files.back())) {
            tree.files.push_back(name);
        }
    }
    return tree;
}

Snapshot summed_up(const WorkTree& tree, std::size_t files) {
    Snapshot out;
    out.labels = Json::object();
    out.labels["git-commit"] = tree.hash;
    out.labels["git-dirty"] = tree.dirty ? "true" : "false";
    out.summary = "commit " + tree.hash.substr(0, 12) + (tree.dirty ? " with changes" : "") + ", " +
                  std::to_string(files) + " files";
    warn_of_untracked(tree.others, out.warnings);
    return out;
}

Result<Copied> copy_all(const WorkTree& tree, const fs::path& folder,
                        const std::function<bool()>& stopped) {
    LOCKSTEP_TRY(make_private_directories(folder));
    Copied copied;
    for (const std::string& name : tree.files) {
        if (stopped()) {
            return fail(Errc::cancelled, "interrupted");
        }
        LOCKSTEP_TRY(copy_one(tree.top / name, folder / name, copied));
    }
    return copied;
}

}  // namespace

std::filesystem::path snapshots_folder(const Options& options) {
    return fs::path{data_directory(options)} / "snapshots";
}

Result<Snapshot> planned_snapshot(const std::string& directory) {
    const auto tree = look_at(directory);
    LOCKSTEP_TRY(tree);
    return summed_up(*tree, tree->files.size());
}

Result<Snapshot> take_snapshot(const std::string& directory, const std::filesystem::path& into,
                               const std::function<bool()>& stopped) {
    const auto tree = look_at(directory);
    LOCKSTEP_TRY(tree);
    const fs::path folder = into / (tree->hash.substr(0, 12) + "-" + random_secret().substr(0, 12));
    const auto copied = copy_all(*tree, folder, stopped);
    std::error_code ec;
    if (!copied) {
        fs::remove_all(folder, ec);
        return fail(copied.error());
    }
    Snapshot out = summed_up(*tree, copied->files);
    out.root = folder;
    out.summary += ", " + size_text(copied->bytes);
    const fs::path work = (folder / tree->inside).lexically_normal();
    fs::create_directories(work, ec);
    out.directory = work.string();
    while (out.directory.size() > 1 && out.directory.back() == '/') {
        out.directory.pop_back();
    }
    return out;
}

}  // namespace lockstep::cli
