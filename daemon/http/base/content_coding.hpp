// Bodies as gzip (RFC 1952), and the request headers that decide whether a body is sent at all.
// Pure; any thread.
#pragma once

#include "job/base/result.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Whether an Accept-Encoding takes gzip: named or *, and not with q=0.
bool accepts_gzip(std::string_view accept_encoding);
// Quick rather than small: 100 MB/s and more, JSON to a tenth. An Error only without memory.
Result<std::string> gzip_bytes(std::string_view bytes);
// corrupt: not gzip; exhausted: more than `cap` bytes.
Result<std::string> gunzip_bytes(std::string_view bytes, std::size_t cap);

// A strong entity tag of the bytes, in its quotes. `variant` tells codings of the same bytes apart.
std::string entity_tag(std::string_view bytes, std::string_view variant = "");
// Whether an If-None-Match names the tag (weak comparison, RFC 9110 §13.1.2).
bool tag_matches(std::string_view if_none_match, std::string_view tag);

}  // namespace lockstep
