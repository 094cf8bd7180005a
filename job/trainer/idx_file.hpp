// The IDX format of the MNIST files: big-endian magic 0x00 0x00 <type> <dimensions>, one 32-bit
// size per dimension, then the values. Only unsigned bytes (type 0x08) occur here.
// Source: the format's description on the MNIST page, http://yann.lecun.com/exdb/mnist/.
#pragma once

#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

struct IdxFile {
    std::vector<std::uint32_t> sizes;  // e.g. {60000, 28, 28}
    std::vector<std::uint8_t> values;  // row-major
};

// A name that ends in ".gz" is unpacked first. Reads a file of exactly `dimensions` dimensions.
// invalid: not IDX, another type or number of dimensions, more or fewer bytes than its sizes say;
// messages name the file and both numbers.
Result<IdxFile> read_idx(const std::filesystem::path& path, std::uint32_t dimensions);
// Replaces the file atomically.
Status write_idx(const std::filesystem::path& path, const IdxFile& file);

}  // namespace lockstep
