// TensorBoard's event files: records of protocol buffers, encoded here because of their messages
// two small ones are needed.
//   Record (TFRecord, tensorflow/core/lib/io/record_writer.h), little-endian: u64 length, u32
//   masked CRC of these 8 bytes, the data, u32 masked CRC of the data.
//   Event (tensorflow/core/util/event.proto): 1 wall_time double, 2 step int64, 3 file_version
//   string, 5 summary. Summary (framework/summary.proto): 1 value, repeated: 1 tag string,
//   2 simple_value float.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::cli {

// RFC 3720 §12.1 and B.4 (Castagnoli), and rotated with an offset as record_writer.h does it.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// Appends one record.
void append_record(std::string& out, std::string_view data);
// Appends the record every file begins with. `wall_time`: seconds since the Unix epoch.
void append_version_event(std::string& out, double wall_time);
// Appends the record of one scalar. TensorBoard's are 32 bits wide: `value` is rounded to the
// nearest of them, to infinity if none is near.
void append_scalar_event(std::string& out, double wall_time, std::int64_t step,
                         std::string_view tag, double value);

}  // namespace lockstep::cli
