// From bytes to a RequestHead, strictly. Beast's parser decides the grammar; what it is known to
// let through (no Host or two, obsolete line folding, transfer codings) is refused here first, so
// that a server in front cannot see a different request than this one. Pure; any thread.
#pragma once

#include "daemon/http/base/message.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Why a request is refused before it is routed; the connection closes after the answer.
struct HeadProblem {
    int status = 400;
    std::string detail;
};

// Where the header block ends (behind its blank line), or npos. `from`: how much was searched
// before.
std::size_t head_end(std::string_view bytes, std::size_t from);
// The answer to a header block that has no end within limits::kHeaderBytes: 414 when it is still
// the request line, otherwise 431.
HeadProblem endless_head(std::string_view bytes);
// Parses one complete header block into `head`, whose buffers are reused.
std::optional<HeadProblem> parse_head(std::string_view block, RequestHead& head);

// The path and the query of the target; 400 when it is not in origin form or malformed.
std::optional<HeadProblem> split_target(HttpRequest& request);

// The host of a Host header without its port, [] kept; "" when malformed.
std::string_view host_without_port(std::string_view host);

}  // namespace lockstep
