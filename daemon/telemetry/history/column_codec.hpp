// How history on disk is packed: 64-bit values as differences (delta, delta of delta or XOR), byte
// shuffle (bytes grouped by significance), then zstd with a checksum. Integers (steps) and the bits
// of doubles take the same way; what comes back is the same bit for bit. Reading accepts any bytes,
// as from a damaged disk: it returns an error and never reads beyond them. Pure; any thread, one
// ColumnCodec per thread at a time.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

class ColumnCodec {
  public:
    ColumnCodec();
    ~ColumnCodec();
    ColumnCodec(const ColumnCodec&) = delete;
    ColumnCodec& operator=(const ColumnCodec&) = delete;

    // Appends a block: u8 how, u32 values, u32 bytes, bytes. The way to take differences is the one
    // that leaves the fewest bytes in a sample of the values.
    // Where zstd fails (it has no memory) failed() says so, and what was appended is of no use.
    void pack(std::span<const std::uint64_t> values, std::string& out);
    void pack(std::span<const double> values, std::string& out);
    bool failed() const { return failed_; }  // of all blocks so far

    // Takes a block off the front of `in`. corrupt: truncated, damaged, or not `count` values.
    Status unpack(std::string_view& in, std::size_t count, std::vector<std::uint64_t>& values);
    Status unpack(std::string_view& in, std::size_t count, std::vector<double>& values);

  private:
    struct Contexts;
    std::unique_ptr<Contexts> contexts_;
    std::vector<std::uint64_t> words_;
    std::vector<unsigned char> bytes_;
    bool failed_ = false;
};

// Bytes as one zstd frame with a checksum, and back; at most `most` bytes come out. exhausted: zstd
// has no memory.
Result<std::string> compress_bytes(std::string_view bytes);
Result<std::string> decompress_bytes(std::string_view frame, std::size_t most);

}  // namespace lockstep::telemetry
