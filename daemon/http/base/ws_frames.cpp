#include "daemon/http/base/ws_frames.hpp"

#include "job/base/digest.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::ws {
namespace {

// Capacity that a quiet connection may hold on to.
constexpr std::size_t kKeepBytes = 64U << 10U;

unsigned char byte_of(char c) {
    return static_cast<unsigned char>(c);
}

void unmask(std::span<char> bytes, const std::array<char, 4>& mask) {
    std::uint32_t four = 0;
    std::memcpy(&four, mask.data(), sizeof(four));
    if (four == 0) {
        return;
    }
    const std::uint64_t eight = std::uint64_t{four} << 32U | four;
    std::size_t i = 0;
    for (; i + sizeof(eight) <= bytes.size(); i += sizeof(eight)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i, sizeof(word));
        word ^= eight;
        std::memcpy(bytes.data() + i, &word, sizeof(word));
    }
    for (; i < bytes.size(); ++i) {
        bytes[i] = static_cast<char>(byte_of(bytes[i]) ^ byte_of(mask[i % 4]));
    }
}

// How many bytes a character takes whose first is this one, and the least code that may take so
// many; 0: no character begins so.
struct Lead {
    std::size_t size;
    std::uint32_t bits;
    std::uint32_t least;
};
Lead lead_of(unsigned char first) {
    if (first < 0x80) {
        return {1, first, 0};
    }
    if ((first & 0xE0U) == 0xC0) {
        return {2, first & 0x1FU, 0x80};
    }
    if ((first & 0xF0U) == 0xE0) {
        return {3, first & 0x0FU, 0x800};
    }
    if ((first & 0xF8U) == 0xF0) {
        return {4, first & 0x07U, 0x10000};
    }
    return {0, 0, 0};
}

bool is_utf8(std::string_view text) {
    constexpr std::uint64_t kBeyondAscii = 0x8080808080808080ULL;
    std::size_t i = 0;
    while (i < text.size()) {
        std::uint64_t word = 0;
        if (i + sizeof(word) <= text.size()) {
            std::memcpy(&word, text.data() + i, sizeof(word));
            if ((word & kBeyondAscii) == 0) {
                i += sizeof(word);
                continue;
            }
        }
        const Lead lead = lead_of(byte_of(text[i]));
        if (lead.size == 0 || i + lead.size > text.size()) {
            return false;
        }
        std::uint32_t code = lead.bits;
        for (std::size_t k = 1; k < lead.size; ++k) {
            if ((byte_of(text[i + k]) & 0xC0U) != 0x80) {
                return false;
            }
            code = code << 6U | (byte_of(text[i + k]) & 0x3FU);
        }
        if (code < lead.least || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
            return false;
        }
        i += lead.size;
    }
    return true;
}

// What an endpoint may send (RFC 6455 §7.4, and the codes registered with IANA since).
bool may_be_sent(unsigned code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

// Nothing, or a code and words (§5.5.1).
std::uint16_t check_close(std::string_view payload) {
    if (payload.empty()) {
        return 0;
    }
    if (payload.size() == 1 ||
        !may_be_sent(static_cast<unsigned>(byte_of(payload[0])) << 8U | byte_of(payload[1]))) {
        return kProtocolError;
    }
    return is_utf8(payload.substr(2)) ? 0 : kNotUtf8;
}

bool is_control(Opcode opcode) {
    return static_cast<unsigned>(opcode) >= static_cast<unsigned>(Opcode::close);
}

}  // namespace

std::string accept_of(std::string_view key) {
    return base64_encode(sha1_bytes(std::string{key} + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
}

Head head_of(Opcode opcode, std::size_t payload) {
    Head head;
    head.bytes[0] = static_cast<char>(0x80U | static_cast<unsigned>(opcode));
    std::size_t more = 0;
    if (payload < 126) {
        head.bytes[1] = static_cast<char>(payload);
    } else {
        more = payload <= 0xFFFF ? 2 : 8;
        head.bytes[1] = more == 2 ? 126 : 127;
    }
    for (std::size_t i = 0; i < more; ++i) {
        head.bytes[2 + i] = static_cast<char>(payload >> (8 * (more - 1 - i)) & 0xFFU);
    }
    head.size = static_cast<std::uint8_t>(2 + more);
    return head;
}

std::string close_payload(std::uint16_t code, std::string_view reason) {
    std::string out{static_cast<char>(code >> 8U), static_cast<char>(code & 0xFFU)};
    out += reason.substr(0, kControlBytes - 2);
    return out;
}

void FrameReader::feed(std::span<char> bytes) {
    if (kept_.empty()) {
        in_ = bytes;
    } else {
        kept_.append(bytes.data(), bytes.size());
        in_ = kept_;
    }
}

std::uint16_t FrameReader::check(const Frame& frame) const {
    switch (frame.opcode) {
        case Opcode::continuation:
            return of_ == Opcode::continuation ? kProtocolError : 0;
        case Opcode::text:
        case Opcode::binary:
            return of_ == Opcode::continuation ? 0 : kProtocolError;
        case Opcode::close:
        case Opcode::ping:
        case Opcode::pong:
            return frame.last && frame.size <= kControlBytes ? 0 : kProtocolError;
    }
    return kProtocolError;
}

std::uint16_t FrameReader::read_head(Frame& frame, bool& whole) const {
    whole = false;
    if (in_.size() < 2) {
        return 0;
    }
    const unsigned first = byte_of(in_[0]);
    const unsigned second = byte_of(in_[1]);
    frame.last = (first & 0x80U) != 0;
    frame.opcode = static_cast<Opcode>(first & 0x0FU);
    frame.size = second & 0x7FU;
    // No extension was agreed on, and what a client sends is masked (§5.1, §5.2).
    if ((first & 0x70U) != 0 || (second & 0x80U) == 0) {
        return kProtocolError;
    }
    const std::size_t more = frame.size == 126 ? 2 : frame.size == 127 ? 8 : 0;
    frame.head = 2 + more + frame.mask.size();
    if (in_.size() < frame.head) {
        return frame.size <= kControlBytes ? check(frame) : 0;
    }
    if (more > 0) {
        frame.size = 0;
        for (std::size_t i = 0; i < more; ++i) {
            frame.size = frame.size << 8U | byte_of(in_[2 + i]);
        }
        if (frame.size < (more == 2 ? 126U : 0x10000U)) {
            return kProtocolError;  // not the shortest way to say it
        }
    }
    if (const std::uint16_t code = check(frame); code != 0) {
        return code;
    }
    if (!is_control(frame.opcode) && frame.size > most_ - message_.size()) {
        return kTooBig;
    }
    std::copy_n(in_.begin() + static_cast<std::ptrdiff_t>(frame.head - frame.mask.size()),
                frame.mask.size(), frame.mask.begin());
    whole = in_.size() - frame.head >= frame.size;
    return 0;
}

FrameReader::Event FrameReader::take(const Frame& frame, std::span<char> payload) {
    unmask(payload, frame.mask);
    std::string_view bytes{payload.data(), payload.size()};
    switch (frame.opcode) {
        case Opcode::close: {
            const std::uint16_t wrong = check_close(bytes);
            return wrong != 0 ? Event{Kind::broken, {}, wrong} : Event{Kind::close, bytes};
        }
        case Opcode::ping:
            return {Kind::ping, bytes};
        case Opcode::pong:
            return {Kind::pong, bytes};
        case Opcode::continuation:
        case Opcode::text:
        case Opcode::binary:
            break;
    }
    const Opcode opcode = frame.opcode == Opcode::continuation ? of_ : frame.opcode;
    if (!frame.last || frame.opcode == Opcode::continuation) {
        message_ += bytes;
        of_ = opcode;
        if (!frame.last) {
            return {};
        }
        bytes = message_;
    }
    of_ = Opcode::continuation;
    if (opcode == Opcode::text && !is_utf8(bytes)) {
        return {Kind::broken, {}, kNotUtf8};
    }
    return {opcode == Opcode::text ? Kind::text : Kind::binary, bytes};
}

// kept_ is what in_ still shows.
void FrameReader::keep_rest() {
    if (in_.empty()) {
        kept_.clear();
        if (kept_.capacity() > kKeepBytes) {
            kept_.shrink_to_fit();
        }
    } else if (kept_.empty()) {
        kept_.assign(in_.data(), in_.size());
    } else {
        kept_.erase(0, kept_.size() - in_.size());
    }
    in_ = {};
}

FrameReader::Event FrameReader::next() {
    if (of_ == Opcode::continuation && !message_.empty()) {  // it was given out
        message_.clear();
        if (message_.capacity() > kKeepBytes) {
            message_.shrink_to_fit();
        }
    }
    while (!broken_) {
        Frame frame;
        bool whole = false;
        if (const std::uint16_t code = read_head(frame, whole); code != 0) {
            broken_ = true;
            return {Kind::broken, {}, code};
        }
        if (!whole) {
            break;
        }
        const std::span<char> payload = in_.subspan(frame.head, frame.size);
        in_ = in_.subspan(frame.head + frame.size);
        const Event event = take(frame, payload);
        broken_ = event.kind == Kind::broken;
        if (event.kind != Kind::none) {
            return event;
        }
    }
    keep_rest();
    return {};
}

}  // namespace lockstep::ws
