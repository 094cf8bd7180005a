#include "job/base/ids.hpp"

#include "job/base/check.hpp"
#include "job/base/text.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <span>

namespace lockstep {
namespace {

constexpr std::string_view kCrockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void fill_random(std::span<unsigned char> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const auto got = getrandom(bytes.data() + done, bytes.size() - done, 0);
        LOCKSTEP_CHECK(got > 0);
        done += static_cast<std::size_t>(got);
    }
}

std::string encode_ulid(UnixMillis time, const std::array<unsigned char, 10>& random) {
    std::array<unsigned char, 16> raw{};
    for (std::size_t i = 0; i < 6; ++i) {
        raw[i] = static_cast<unsigned char>(time >> (40 - 8 * i));
    }
    std::copy(random.begin(), random.end(), raw.begin() + 6);
    // 128 bits in 26 characters of 5 bits: two zero bits in front.
    std::string out(26, '0');
    for (std::size_t character = 0; character < 26; ++character) {
        unsigned value = 0;
        for (std::size_t bit = 0; bit < 5; ++bit) {
            const std::size_t position = character * 5 + bit;
            const unsigned one =
                position < 2 ? 0U : (raw[(position - 2) / 8] >> (7 - (position - 2) % 8)) & 1U;
            value = value << 1U | one;
        }
        out[character] = kCrockford[value];
    }
    return out;
}

}  // namespace

JobId make_job_id(UnixMillis now) {
    static UnixMillis last_time = 0;
    static std::array<unsigned char, 10> last_random{};
    if (now <= last_time) {
        // Same millisecond (or the clock stepped back): count up, so ids keep ascending.
        for (std::size_t i = last_random.size(); i-- > 0;) {
            if (++last_random[i] != 0) {
                break;
            }
        }
    } else {
        last_time = now;
        fill_random(last_random);
    }
    return JobId{"ls-" + encode_ulid(last_time, last_random)};
}

bool is_job_id(std::string_view text) {
    if (text.size() != 29 || text.substr(0, 3) != "ls-" || text[3] > '7') {
        return false;
    }
    text.remove_prefix(3);
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return kCrockford.find(c) != std::string_view::npos; });
}

std::string random_secret() {
    std::array<unsigned char, 32> bytes{};
    fill_random(bytes);
    return to_hex(bytes);
}

}  // namespace lockstep
