// A request's head is understood in one way: said again as it was understood, it is the same one.
#include "daemon/http/base/request_head.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using lockstep::RequestHead;
    const std::string_view bytes{reinterpret_cast<const char*>(data), size};
    const std::size_t end = lockstep::head_end(bytes, 0);
    if (end == std::string_view::npos) {
        if (lockstep::endless_head(bytes).status < 400) {
            std::abort();
        }
        return 0;
    }
    lockstep::HttpRequest request;
    if (lockstep::parse_head(bytes.substr(0, end), request.head)) {
        return 0;
    }
    static_cast<void>(lockstep::split_target(request));
    RequestHead again;
    if (lockstep::parse_head(bytes.substr(0, end), again) ||
        again.content_length != request.head.content_length ||
        again.keep_alive != request.head.keep_alive || again.method != request.head.method ||
        again.target() != request.head.target()) {
        std::abort();
    }
    return 0;
}
