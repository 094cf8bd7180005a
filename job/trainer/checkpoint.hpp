// Checkpoint files: "step-00000200.ckpt" = one line of magic and lengths, a JSON header, the
// floats of every section, and a SHA-256 over all of it, so that a torn or damaged file is known
// for what it is. Written whole, synced, renamed: a reader sees a complete file or none.
// Pure functions over files; one writer per folder (rank 0).
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct Checkpoint {
    std::int64_t step = 0;      // finished optimizer steps
    std::int64_t epoch = 0;     // of the next step
    std::int64_t consumed = 0;  // samples of that epoch's order already used by all ranks
    std::int32_t ranks = 1;     // that wrote it, for information
    // Hash of the configuration's fields that shape the training; another one cannot go on here.
    std::string config_hash;
    // Those fields, so that a refusal can name what differs; null in files of version 0.1.
    Json config = nullptr;
    std::vector<float> parameters;  // Model::parameters(): the flat buffer
    std::vector<float> buffers;     // moving averages
    std::vector<float> optimizer;   // Optimizer::state()
    // For tools that read the file: names, shapes and offsets of what is in `parameters`.
    Json layout = Json::array();
};

// The bytes of the file. Deterministic.
std::string encode_checkpoint(const Checkpoint& checkpoint);
// corrupt: not a checkpoint, truncated, damaged.
Result<Checkpoint> decode_checkpoint(std::string_view bytes);

std::string checkpoint_name(std::int64_t step);
// Makes the folder if needed, writes the file durably, then removes all but the newest `keep`
// complete ones and leftovers of interrupted writes. Returns the path.
Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const Checkpoint& checkpoint, std::size_t keep = 2);

struct FoundCheckpoint {
    std::filesystem::path path;
    Checkpoint checkpoint;
};
// The newest file that reads back; damaged ones are logged and passed over. Nothing if there is
// none or the folder does not exist.
Result<std::optional<FoundCheckpoint>> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep
