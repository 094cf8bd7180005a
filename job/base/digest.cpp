#include "job/base/digest.hpp"

#include "job/base/check.hpp"
#include "job/base/text.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>

namespace lockstep {

std::string sha256_hex(std::string_view bytes) {
    std::array<unsigned char, 32> digest{};
    unsigned size = 0;
    LOCKSTEP_CHECK(
        EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1);
    return to_hex(digest);
}

std::string sha1_bytes(std::string_view bytes) {
    std::array<unsigned char, 20> digest{};
    unsigned size = 0;
    LOCKSTEP_CHECK(
        EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha1(), nullptr) == 1);
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool equal_secret(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep
