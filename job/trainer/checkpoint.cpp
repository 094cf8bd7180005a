#include "job/trainer/checkpoint.hpp"

#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/trainer/checkpoint_bytes.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";
constexpr std::string_view kPartWord{".part-"};
constexpr auto kPartPollFirst = std::chrono::milliseconds{1};
constexpr auto kPartPoll = std::chrono::milliseconds{20};
constexpr std::size_t kChecksumBytes = 64;

// What a file is by its name.
struct Named {
    enum class Kind { other, checkpoint, part, torn } kind = Kind::other;
    std::int64_t step = 0;
};

// "step-00000200.ckpt", "step-00000200.part-1-of-2", and either of them with ".tmp.PID".
Named named(const std::string& name) {
    if (!name.starts_with(kPrefix)) {
        return {};
    }
    const std::string_view rest = std::string_view{name}.substr(kPrefix.size());
    const std::size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos || digits > 18) {
        return {};
    }
    Named out;
    for (const char c : rest.substr(0, digits)) {
        out.step = out.step * 10 + (c - '0');
    }
    const std::string_view kind = rest.substr(digits);
    if (kind == kSuffix) {
        out.kind = Named::Kind::checkpoint;
    } else if (kind.starts_with(kPartWord)) {
        out.kind = Named::Kind::part;
    } else if (kind.starts_with(std::string{kSuffix} + ".tmp.")) {
        out.kind = Named::Kind::torn;
    }
    return out;
}

struct Listed {
    std::vector<std::pair<std::int64_t, std::filesystem::path>> checkpoints;  // newest first
    std::vector<std::pair<std::int64_t, std::filesystem::path>> parts;
    std::vector<std::filesystem::path> torn;
};

// A folder that is not there has no files.
Result<Listed> list(const std::filesystem::path& folder) {
    Listed out;
    std::error_code error;
    for (std::filesystem::directory_iterator it{folder, error}, end; !error && it != end;
         it.increment(error)) {
        const Named what = named(it->path().filename().string());
        switch (what.kind) {
            case Named::Kind::checkpoint:
                out.checkpoints.emplace_back(what.step, it->path());
                break;
            case Named::Kind::part:
                out.parts.emplace_back(what.step, it->path());
                break;
            case Named::Kind::torn:
                out.torn.push_back(it->path());
                break;
            case Named::Kind::other:
                break;
        }
    }
    if (error && error != std::errc::no_such_file_or_directory) {
        return fail(errno_error("read the folder " + folder.string(), error.value()));
    }
    std::sort(out.checkpoints.rbegin(), out.checkpoints.rend());
    return out;
}

// Later steps than this one are from a run that was rolled back: they count as newest, and stay
// until `keep` newer ones exist. Parts of later steps may be on their way.
void remove_old(const std::filesystem::path& folder, std::int64_t step, std::size_t keep) {
    const Result<Listed> listed = list(folder);
    if (!listed) {
        return;  // a file too many does no harm
    }
    const Listed& files = *listed;
    std::vector<std::filesystem::path> old = files.torn;
    std::set<std::int64_t> kept{step};
    for (std::size_t i = 0; i < files.checkpoints.size(); ++i) {
        const auto& [of, path] = files.checkpoints[i];
        if (i < keep || of == step) {
            kept.insert(of);
        } else {
            old.push_back(path);
        }
    }
    for (const auto& [of, path] : files.parts) {
        if (of < step && !kept.contains(of)) {
            old.push_back(path);
        }
    }
    for (const std::filesystem::path& each : old) {
        std::error_code ignored;
        std::filesystem::remove(each, ignored);
    }
}

Result<std::filesystem::path> put_checkpoint(const std::filesystem::path& folder,
                                             const CheckpointFile& file,
                                             const std::vector<CheckpointSlice>& slices,
                                             std::size_t keep, std::string& bytes) {
    if (const Status made = make_private_directories(folder); !made) {
        return fail(made.error().in("checkpoint"));
    }
    const std::filesystem::path path = folder / checkpoint_name(file.head.step);
    encode_file(file, slices, bytes);
    if (const Status put = write_file_atomic(path, bytes); !put) {
        return fail(put.error().in("checkpoint"));
    }
    remove_old(folder, file.head.step, keep);
    return path;
}

// "step-00000200.part-1-of-3-9f…": see PartSet.
std::string part_name(const PartSet& set, std::int32_t index) {
    std::string name = checkpoint_name(set.step);
    name.resize(name.size() - kSuffix.size());
    std::array<char, 64> rest{};
    std::snprintf(rest.data(), rest.size(), "%s%d-of-%d-%016llx", kPartWord.data(), index,
                  set.count, static_cast<unsigned long long>(set.start));
    return name + rest.data();
}

// A part has its name once it is whole.
Result<PartFile> wait_for_part(const std::filesystem::path& folder, std::string name,
                               const std::atomic<bool>& give_up) {
    const auto end = std::chrono::steady_clock::now() + limits::kCheckpointPartPatience;
    for (auto pause = kPartPollFirst;; pause = std::min(2 * pause, kPartPoll)) {
        const Result<std::string> tail = read_plain_tail(folder / name, kChecksumBytes);
        if (tail && tail->size() == kChecksumBytes) {
            return PartFile{std::move(name), *tail};
        }
        if (give_up) {
            return fail(Errc::cancelled, "checkpoint: " + name + " is not waited for");
        }
        if (std::chrono::steady_clock::now() >= end) {
            return fail(Errc::unavailable,
                        "checkpoint: " + (folder / name).string() +
                            ", which another rank writes, is not there for rank 0 after " +
                            std::to_string(limits::kCheckpointPartPatience.count()) +
                            " s: that rank has ended, or the folder is not one that all share");
        }
        std::this_thread::sleep_for(pause);
    }
}

// The whole checkpoint whose first file is this one.
Result<Checkpoint> read_checkpoint(const std::filesystem::path& path, std::int64_t step) {
    const Result<std::string> bytes = read_file(path, limits::kCheckpointFileBytes);
    LOCKSTEP_TRY(bytes);
    Result<CheckpointFile> file = decode_file(*bytes);
    LOCKSTEP_TRY(file);
    if (file->head.step != step) {
        return fail(Errc::corrupt, "another step than its name says");
    }
    for (const PartFile& part : file->parts) {
        const std::string name = std::filesystem::path{part.name}.filename().string();
        const Result<std::string> more =
            read_file(path.parent_path() / name, limits::kCheckpointFileBytes);
        if (!more) {
            return fail(Error{more.error()}.in("part " + name));
        }
        Result<CheckpointFile> decoded = decode_file(*more);
        if (!decoded) {
            return fail(std::move(decoded).error().in("part " + name));
        }
        if (decoded->sha256 != part.sha256) {
            return fail(Errc::corrupt, "part " + name + " is of another checkpoint");
        }
        std::move(decoded->slices.begin(), decoded->slices.end(), std::back_inserter(file->slices));
    }
    return assemble(std::move(*file));
}

}  // namespace

void Snapshot::copy() {
    for (CheckpointSlice& slice : part.slices) {
        if (slice.source.data() != nullptr && !slice.kept) {
            slice.values.assign(slice.source.begin(), slice.source.end());
            slice.source = {};
        }
    }
}

std::string checkpoint_name(std::int64_t step) {
    std::array<char, 40> name{};
    std::snprintf(name.data(), name.size(), "step-%08lld.ckpt", static_cast<long long>(step));
    return name.data();
}

Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const Checkpoint& checkpoint, std::size_t keep) {
    const CheckpointFile file = whole_file(checkpoint);
    std::string bytes;
    return put_checkpoint(folder, file, file.slices, keep, bytes);
}

Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const CheckpointHead& head, SectionSizes sizes,
                                               CheckpointPart& own, const PartSet& set,
                                               const std::atomic<bool>& give_up, std::size_t keep) {
    CheckpointFile file{head, sizes, {}, {}, ""};
    for (std::int32_t index = 1; index < set.count; ++index) {
        Result<PartFile> part = wait_for_part(folder, part_name(set, index), give_up);
        LOCKSTEP_TRY(part);
        file.parts.push_back(std::move(*part));
    }
    return put_checkpoint(folder, file, own.slices, keep, own.bytes);
}

Result<std::filesystem::path> write_part(const std::filesystem::path& folder, const PartSet& set,
                                         std::int32_t index, CheckpointPart& part) {
    if (const Status made = make_private_directories(folder); !made) {
        return fail(made.error().in("checkpoint"));
    }
    CheckpointFile file;
    file.head.step = set.step;
    std::filesystem::path path = folder / part_name(set, index);
    encode_file(file, part.slices, part.bytes);
    if (const Status put = write_file_atomic(path, part.bytes); !put) {
        return fail(put.error().in("checkpoint"));
    }
    return path;
}

Result<std::optional<FoundCheckpoint>> latest_checkpoint(const std::filesystem::path& folder) {
    const Result<Listed> files = list(folder);
    if (!files) {
        return fail(files.error().in("checkpoint"));
    }
    for (const auto& [step, path] : files->checkpoints) {
        Result<Checkpoint> read = read_checkpoint(path, step);
        if (read) {
            return FoundCheckpoint{path, std::move(*read)};
        }
        if (read.error().code == Errc::denied || read.error().code == Errc::internal) {
            return fail(std::move(read).error().in("checkpoint"));
        }
        log::warn("checkpoint passed over",
                  {{"path", path.string()}, {"reason", read.error().message}});
    }
    return std::nullopt;
}

}  // namespace lockstep
