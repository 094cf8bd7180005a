// Files of named tensors as Python's `safetensors` package reads and writes them: 8 bytes of
// length, so much JSON ({"name": {"dtype", "shape", "data_offsets"}}, "__metadata__"), then the
// values. Source: https://huggingface.co/docs/safetensors, "Format". A file may come from anywhere:
// every number in its header is checked against the file before anything is allocated or read.
// Blocking; any thread.
#pragma once

#include "job/base/result.hpp"
#include "job/base/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// What is written: 32-bit floats, row by row.
struct NamedTensor {
    std::string name;
    std::vector<std::int64_t> shape;  // nothing: one number
    std::vector<float> values;
};

// The bytes of a file; values begin on a multiple of 8. `metadata`: words for tools that read it.
std::string encode_safetensors(std::span<const NamedTensor> tensors,
                               const std::vector<std::pair<std::string, std::string>>& metadata);

// One tensor of a file that is read.
struct TensorEntry {
    std::string dtype;  // F64, F32, F16, BF16, I64, …
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // in bytes, behind the header
    std::uint64_t end = 0;
};

// The header of `bytes` bytes of values: every entry with a known dtype, its size that of its
// shape, and the entries side by side from the first byte of the values to the last. invalid
// otherwise, with the entry's name.
Result<std::map<std::string, TensorEntry>> parse_safetensors_header(std::string_view json,
                                                                    std::uint64_t bytes);

class TensorFile {
  public:
    // not_found, denied: cannot be opened, or is no regular file. invalid: not such a file.
    static Result<TensorFile> open(const std::filesystem::path& path);

    const std::map<std::string, TensorEntry>& entries() const { return entries_; }
    // The values as they are stored, little-endian. corrupt: the file has become shorter.
    Result<std::string> read(const TensorEntry& entry) const;
    const std::filesystem::path& path() const { return path_; }

  private:
    TensorFile() = default;

    std::filesystem::path path_;
    UniqueFd file_;
    std::uint64_t values_ = 0;  // where they begin
    std::map<std::string, TensorEntry> entries_;
};

}  // namespace lockstep
