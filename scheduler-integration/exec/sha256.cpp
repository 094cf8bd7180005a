#include "scheduler-integration/exec/sha256.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace lockstep::exec {
namespace {

constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void add_block(std::uint32_t (&state)[8], const unsigned char* block) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
        w[i] = std::uint32_t{block[4 * i]} << 24U | std::uint32_t{block[4 * i + 1]} << 16U |
               std::uint32_t{block[4 * i + 2]} << 8U | block[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15];
        const std::uint32_t b = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3U)) + w[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10U));
    }
    std::uint32_t s[8];
    std::memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; ++i) {
        const std::uint32_t one = s[7] +
                                  (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) +
                                  ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
        const std::uint32_t two = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) +
                                  ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        std::memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; ++i) {
        state[i] += s[i];
    }
}

}  // namespace

void sha256_hex(const char* bytes, std::size_t size, char (&out)[65]) {
    std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const auto* at = reinterpret_cast<const unsigned char*>(bytes);
    const std::uint64_t bits = std::uint64_t{size} * 8;
    for (; size >= 64; size -= 64, at += 64) {
        add_block(state, at);
    }
    unsigned char last[128] = {};
    std::memcpy(last, at, size);
    last[size] = 0x80;
    const std::size_t end = size < 56 ? 64 : 128;
    for (std::size_t i = 0; i < 8; ++i) {
        last[end - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
    }
    add_block(state, last);
    if (end == 128) {
        add_block(state, last + 64);
    }
    for (std::size_t i = 0; i < 64; ++i) {
        out[i] = "0123456789abcdef"[(state[i / 8] >> (28 - 4 * (i % 8))) & 15U];
    }
    out[64] = '\0';
}

}  // namespace lockstep::exec
