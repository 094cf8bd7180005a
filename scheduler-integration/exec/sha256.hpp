// SHA-256 (FIPS 180-4) for lockstep-exec, which links no cryptographic library: one reads files of
// configuration as it loads, as root.
#pragma once

#include <cstddef>

namespace lockstep::exec {

// 64 lower-case hexadecimal characters and a NUL byte.
void sha256_hex(const char* bytes, std::size_t size, char (&out)[65]);

}  // namespace lockstep::exec
