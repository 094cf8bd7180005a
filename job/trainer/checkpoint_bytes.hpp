// The bytes of a checkpoint's files. Internal to checkpoint.cpp. Pure functions.
#pragma once

#include "job/trainer/checkpoint.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// One file: a whole checkpoint, its first part, or another one (which has no head but the step).
struct CheckpointFile {
    CheckpointHead head;
    SectionSizes sizes;                   // of the whole state
    std::vector<CheckpointSlice> slices;  // that were decoded
    std::vector<PartFile> parts;
    std::string sha256;  // of what was decoded
};

CheckpointFile whole_file(const Checkpoint& checkpoint);
// The file of `file`'s head, sizes and parts with these slices, into `bytes`, which keeps its
// memory from one file to the next: the pages of a new one cost more than what is written there.
void encode_file(const CheckpointFile& file, const std::vector<CheckpointSlice>& slices,
                 std::string& bytes);
// corrupt: not a checkpoint, truncated, damaged.
Result<CheckpointFile> decode_file(std::string_view bytes);
// All slices in their places. corrupt: they are not all of every section.
Result<Checkpoint> assemble(CheckpointFile file);

}  // namespace lockstep
