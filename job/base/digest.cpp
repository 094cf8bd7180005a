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

void Sha256::Free::operator()(void* context) const {
    EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    auto* context = static_cast<EVP_MD_CTX*>(context_.get());
    LOCKSTEP_CHECK(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1);
}

void Sha256::add(std::string_view bytes) {
    LOCKSTEP_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_.get()), bytes.data(),
                                    bytes.size()) == 1);
}

std::string Sha256::hex() {
    std::array<unsigned char, 32> digest{};
    unsigned size = 0;
    LOCKSTEP_CHECK(
        EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_.get()), digest.data(), &size) == 1);
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
