#include "daemon/http/auth/auth.hpp"

#include "job/base/digest.hpp"
#include "job/base/limits.hpp"

#include <algorithm>

namespace lockstep {
std::string_view bearer_token(std::string_view authorization) {
    constexpr std::string_view kScheme = "bearer ";
    if (authorization.size() <= kScheme.size() ||
        !same_token(authorization.substr(0, kScheme.size()), kScheme)) {
        return {};
    }
    const auto token = authorization.substr(kScheme.size());
    const bool visible =
        std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7F'; });
    return visible && token.size() <= limits::kBearerBytes ? token : std::string_view{};
}

const std::string& TokenMemo::hash(std::string_view token) {
    if (hash_.empty() || !equal_secret(token, token_)) {
        token_.assign(token);
        hash_ = sha256_hex(token);
    }
    return hash_;
}

}  // namespace lockstep
