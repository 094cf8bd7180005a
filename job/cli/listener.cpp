#include "job/cli/listener.hpp"

#include "job/base/machine.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace lockstep::cli {
namespace {

// As /proc/net/tcp has it: words of 32 bits, each as a number of this machine's byte order.
template <class Bytes>
std::string table_text(const Bytes& bytes) {
    std::string out;
    for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, &bytes[at], sizeof word);
        char text[9];
        std::snprintf(text, sizeof text, "%08X", word);
        out += text;
    }
    return out;
}

std::string table_text(const net::ip::address& address) {
    return address.is_v4() ? table_text(address.to_v4().to_bytes())
                           : table_text(address.to_v6().to_bytes());
}

// Whose listening sockets `table` has at `address`, of which it has one family.
std::set<uid_t> owners_in(const char* table, const net::ip::address& address, std::uint16_t port) {
    char number[6];
    std::snprintf(number, sizeof number, ":%04X", port);
    const std::string wanted = table_text(address) + number;
    std::set<uid_t> out;
    std::ifstream file{table};
    for (std::string line; std::getline(file, line);) {
        std::istringstream words{line};
        std::string skipped;
        std::string local;
        std::string state;
        uid_t uid = 0;
        words >> skipped >> local >> skipped >> state >> skipped >> skipped >> skipped >> uid;
        if (!words) {
            continue;  // the heading
        }
        if (state != "0A") {
            break;  // sockets that listen come first (proc_net_tcp.rst)
        }
        if (local == wanted && (uid != kOverflowUser || maps_all_users())) {
            out.insert(uid);
        }
    }
    return out;
}

}  // namespace

std::set<uid_t> listeners_at(const net::ip::address& address, std::uint16_t port) {
    constexpr const char* kFour = "/proc/self/net/tcp";
    constexpr const char* kSix = "/proc/self/net/tcp6";
    const auto mapped = [](const net::ip::address_v4& four) {
        return net::ip::make_address_v6(net::ip::v4_mapped, four);
    };
    // The kernel takes the listener that names the address before one that takes any, and of IPv6's
    // those for any only where IPv4 has none.
    std::vector<std::pair<const char*, net::ip::address>> places;
    if (address.is_v4()) {
        const net::ip::address_v4 any;
        places = {{kFour, address},
                  {kSix, mapped(address.to_v4())},
                  {kFour, any},
                  {kSix, mapped(any)},
                  {kSix, net::ip::address_v6{}}};
    } else {
        // Without its scope.
        places = {{kSix, net::ip::address_v6{address.to_v6().to_bytes()}},
                  {kSix, net::ip::address_v6{}}};
    }
    for (const auto& [table, where] : places) {
        auto owners = owners_in(table, where, port);
        if (!owners.empty()) {
            return owners;
        }
    }
    return {};
}

std::optional<uid_t> stranger_at(const net::ip::address& address, std::uint16_t port,
                                 const std::vector<uid_t>& known) {
    for (const uid_t uid : listeners_at(address, port)) {
        if (uid != 0 && uid != ::geteuid() &&
            std::find(known.begin(), known.end(), uid) == known.end()) {
            return uid;
        }
    }
    return std::nullopt;
}

std::string user_text(uid_t uid) {
    const std::string number = "uid " + std::to_string(uid);
    std::vector<char> room(4096);
    passwd entry{};
    passwd* found = nullptr;
    const bool known = ::getpwuid_r(uid, &entry, room.data(), room.size(), &found) == 0;
    return known && found != nullptr ? std::string{found->pw_name} + " (" + number + ")" : number;
}

}  // namespace lockstep::cli
