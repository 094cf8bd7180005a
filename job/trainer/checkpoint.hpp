// Checkpoint files: "step-00000200.ckpt" = one line of magic and lengths, a JSON header, the
// floats of every section, and a SHA-256 over all of it, so that a torn or damaged file is known
// for what it is. Written whole, synced, renamed: a reader sees a complete file or none.
// Where several ranks hold the state, each writes its part of it beside that file, without a word
// to the others; rank 0 names the parts and their checksums in the file once all of them are there,
// so it is the last to be written, and the checkpoint is there when it is.
// Pure functions over files; one writer per file, and one per folder that removes old ones (rank
// 0).
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/trainer/loss_scale.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// All of a checkpoint but its floats.
struct CheckpointHead {
    std::int64_t step = 0;        // finished optimizer steps
    std::int64_t epoch = 0;       // of the next step
    std::int64_t consumed = 0;    // samples of that epoch's order already used by all ranks
    std::int32_t ranks = 1;       // that wrote it, for information
    std::int32_t batch_size = 0;  // that was found (train.find_batch_size); 0 = as configured
    LossScale loss_scale;         // fp16
    // Updates that the optimizer has made, where they are not step − loss_scale.skipped: with
    // asynchronous servers each step of each worker is one. −1: they are, or an older version wrote
    // the file.
    std::int64_t optimizer_steps = -1;
    // Hash of the configuration's fields that shape the training; another one cannot go on here.
    std::string config_hash;
    // Those fields, so that a refusal can name what differs; null in files of version 0.1.
    Json config = nullptr;
    // For tools that read the file: names, shapes and offsets of what is in `parameters`.
    Json layout = Json::array();
};

// There is no state of random numbers: all of them follow from the seed and the step.
struct Checkpoint : CheckpointHead {
    std::vector<float> parameters;  // Model::parameters(): the flat buffer
    std::vector<float> buffers;     // moving averages
    std::vector<float> optimizer;   // Optimizer::state()
};

enum class Section : std::uint8_t { parameters, buffers, optimizer };

// Some of a section's floats.
struct CheckpointSlice {
    Section section = Section::parameters;
    std::size_t offset = 0;
    std::vector<float> values;
    // What the values are yet to be copied from, if anything: see Snapshot::copy().
    std::span<const float> source = {};
    // The source stays as it is until the file is written: nothing is copied, and `values` are
    // none.
    bool kept = false;

    std::span<const float> floats() const { return kept ? source : std::span<const float>{values}; }
};

// What one rank holds of the state.
struct CheckpointPart {
    std::vector<CheckpointSlice> slices;
    std::string bytes;  // of its file, while and after it is written; only for its memory
};

// How many floats the whole state has.
struct SectionSizes {
    std::size_t parameters = 0;
    std::size_t buffers = 0;
    std::size_t optimizer = 0;
};

// A copy of what this rank holds of the state, to be written beside the training. What only an
// optimizer's step changes may be copied beside the next forward and backward pass.
struct Snapshot {
    std::int32_t index = -1;            // of its part; −1: it holds none
    std::int32_t count = 1;             // parts of the whole
    SectionSizes sizes;                 // of the whole; set where index is 0
    std::int64_t optimizer_steps = -1;  // as in the head; the same
    CheckpointPart part;                // keeps its memory from one snapshot to the next
    Json layout = Json::array();

    // Copies what is not copied yet. Any thread, while nobody changes the sources.
    void copy();
};

struct PartFile {
    std::string name;    // in the checkpoint's folder
    std::string sha256;  // of all before it in the file
};

// Which parts belong together: those of one step of one start of the ranks. A part that an earlier
// start left at the same step is another one.
struct PartSet {
    std::int64_t step = 0;
    std::uint64_t start = 0;  // drawn by rank 0, the same on all ranks
    std::int32_t count = 1;   // rank 0's own part is one of them
};

// The bytes of the file. Deterministic.
std::string encode_checkpoint(const Checkpoint& checkpoint);
// corrupt: not a checkpoint, truncated, damaged, or one of several parts.
Result<Checkpoint> decode_checkpoint(std::string_view bytes);

std::string checkpoint_name(std::int64_t step);
// Makes the folder if needed, writes the file durably, then removes all but the newest `keep`
// complete ones, parts of others, and leftovers of interrupted writes. Returns the path.
Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const Checkpoint& checkpoint, std::size_t keep = 2);
// The same of a state of which rank 0 holds `own`, and others the set's other parts, which it waits
// for. unavailable: one did not come in 30 s (the folder may not be the same for all); cancelled:
// `give_up` was set meanwhile.
Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const CheckpointHead& head, SectionSizes sizes,
                                               CheckpointPart& own, const PartSet& set,
                                               const std::atomic<bool>& give_up,
                                               std::size_t keep = 2);
// Part `index` (from 1) of the set, durable when it returns.
Result<std::filesystem::path> write_part(const std::filesystem::path& folder, const PartSet& set,
                                         std::int32_t index, CheckpointPart& part);

struct FoundCheckpoint {
    std::filesystem::path path;
    Checkpoint checkpoint;
};
// The newest one that reads back with all its parts; damaged ones are logged and passed over.
// Nothing if there is none or the folder does not exist. denied, internal, exhausted: the folder or
// a file cannot be read, so what it holds is not known.
Result<std::optional<FoundCheckpoint>> latest_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep
