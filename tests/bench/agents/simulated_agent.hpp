// What bench_agents is asked for, one of its agents, and what that writes and reads its bytes with.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace lockstep::bench {

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point then) {
    return std::chrono::duration<double, std::milli>(Clock::now() - then).count();
}

struct Options {
    std::uint16_t port = 0;
    std::string ticket;
    int nodes = 0;
    int spares = 0;
    int ranks = 0;  // of a node
    int daemon = 0;
    std::string job;
    std::string token;
    int beat_seconds = 0;
    bool paced = true;
};

struct Agent {
    int number = 0;
    Clock::time_point dialed;
    int fd = -1;
    bool upgraded = false;
    bool gone = false;    // left on purpose
    bool silent = false;  // frozen: connected, says nothing
    int first_rank = 0;
    int generation = 0;  // the newest whose START came
    int aborted = 0;     // the newest whose ABORT came
    std::uint64_t event = 0;
    std::string in;
    std::string out;
};

inline std::int64_t number_in(std::string_view text, std::string_view key) {
    const auto at = text.find(key);
    return at == std::string_view::npos
               ? 0
               : std::strtoll(std::string{text.substr(at + key.size(), 20)}.c_str(), nullptr, 10);
}

inline sockaddr_in loopback(int last, std::uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(0x7F000000U + static_cast<std::uint32_t>(last));
    return out;
}

// A text frame under the mask 0, which leaves the bytes as they are.
inline void frame(std::string& out, std::string_view text) {
    out += '\x81';
    if (text.size() < 126) {
        out += static_cast<char>(0x80U | text.size());
    } else {
        out += '\xfe';
        out += static_cast<char>(text.size() >> 8U);
        out += static_cast<char>(text.size() & 0xFFU);
    }
    out.append(4, '\0');
    out += text;
}

inline bool is(std::string_view text, std::string_view type) {
    return text.find(type) != std::string_view::npos;
}

}  // namespace lockstep::bench
