#include "job/agent/preflight/preflight_facts.hpp"

#include "job/base/files.hpp"
#include "job/base/machine.hpp"
#include "job/base/mounts.hpp"
#include "job/base/text.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

namespace lockstep {
namespace {

constexpr std::size_t kFactBytes = 1U << 20U;
constexpr std::size_t kCandidates = 4;
constexpr std::size_t kMounts = 16;

std::int64_t limit_of(__rlimit_resource which, std::int64_t unit) {
    rlimit limit{};
    if (::getrlimit(which, &limit) != 0) {
        return -1;
    }
    return limit.rlim_max == RLIM_INFINITY ? std::numeric_limits<std::int64_t>::max()
                                           : static_cast<std::int64_t>(limit.rlim_max) / unit;
}

std::string interface_address(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const void* bytes = nullptr;
    if (address->sa_family == AF_INET) {
        bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    } else if (address->sa_family == AF_INET6) {
        bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    }
    return bytes == nullptr ||
                   ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr
               ? std::string{}
               : std::string{text.data()};
}

// As NCCL leaves them out: the same address stands on every machine there, or behind a translation.
bool is_inner(std::string_view interface) {
    constexpr std::array<std::string_view, 8> kInner{"lo",  "docker", "virbr",   "veth",
                                                     "br-", "cni",    "flannel", "tun"};
    return std::any_of(kInner.begin(), kInner.end(),
                       [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

}  // namespace

void read_limits(const std::filesystem::path& root, NodeFacts& out) {
    out.open_files = limit_of(RLIMIT_NOFILE, 1);
    out.memlock_kb = limit_of(RLIMIT_MEMLOCK, 1024);
    if (const auto text = read_file(root / "proc/sys/net/core/somaxconn", kFactBytes)) {
        out.somaxconn = to_int(trim(*text)).value_or(-1);
    }
    std::error_code ec;
    const std::filesystem::directory_iterator devices{root / "sys/class/infiniband", ec};
    out.rdma = !ec && devices != std::filesystem::directory_iterator{};
}

std::vector<AddressFact> read_addresses(const std::string& first) {
    std::vector<AddressFact> out{{"", first}};
    const int family = first.find(':') == std::string::npos ? AF_INET : AF_INET6;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return out;
    }
    for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
        if (item->ifa_addr == nullptr || item->ifa_addr->sa_family != family) {
            continue;
        }
        const std::string address = interface_address(item->ifa_addr);
        if (address == first) {
            out.front().interface = item->ifa_name;
            continue;
        }
        const bool usable = (item->ifa_flags & IFF_UP) != 0 &&
                            (item->ifa_flags & IFF_LOOPBACK) == 0 && !is_inner(item->ifa_name) &&
                            !address.starts_with("169.254.") && !address.starts_with("fe80:");
        const bool known = std::any_of(out.begin(), out.end(),
                                       [&](const auto& one) { return one.address == address; });
        if (usable && !known && out.size() < kCandidates) {
            out.push_back({item->ifa_name, address});
        }
    }
    ::freeifaddrs(list);
    return out;
}

std::vector<std::string> network_mounts(const std::filesystem::path& root) {
    constexpr std::array<std::string_view, 11> kTypes{"nfs",  "lustre",    "fuse.",  "fuse ",
                                                      "ceph", "gpfs",      "beegfs", "cifs",
                                                      "smb3", "glusterfs", "9p"};
    std::vector<std::string> out;
    const auto text = read_file(root / "proc/self/mountinfo", kFactBytes);
    for (Mount& mount : parse_mounts(text ? *text : "")) {
        const bool network = std::any_of(kTypes.begin(), kTypes.end(), [&](std::string_view one) {
            return (mount.type + " ").starts_with(one);
        });
        if (network && out.size() < kMounts) {
            out.push_back(std::move(mount.point));
        }
    }
    return out;
}

std::string look_at_path(const PathFact& path) {
    Json out = Json::object();
    struct stat info{};
    // What is still to be made lies in the nearest directory that is there.
    std::filesystem::path at{path.path};
    int failed = ::stat(at.c_str(), &info) == 0 ? 0 : errno;
    while (path.use == kPathCheckpoint && failed == ENOENT && at.has_relative_path()) {
        at = at.parent_path();
        failed = ::stat(at.c_str(), &info) == 0 ? 0 : errno;
    }
    out["error"] = failed;
    if (failed == 0) {
        out["directory"] = S_ISDIR(info.st_mode);
        out["enter"] = ::access(at.c_str(), X_OK) == 0;
        out["write"] = ::access(at.c_str(), W_OK) == 0;
        struct statvfs room{};
        if (::statvfs(at.c_str(), &room) == 0 && room.f_blocks > 0) {
            out["free_mb"] =
                static_cast<std::int64_t>(static_cast<double>(room.f_bavail) *
                                          static_cast<double>(room.f_frsize) / (1024.0 * 1024.0));
        }
    }
    return dump_json(out);
}

void take_path(const std::string& answer, PathFact& out) {
    const auto json = parse_json(answer);
    if (!json) {
        return;
    }
    std::vector<FieldError> ignored;
    ObjectReader in{*json, "", ignored};
    in.integer("error", out.error, 0, INT32_MAX);
    in.boolean("directory", out.directory);
    in.boolean("enter", out.enter);
    in.boolean("write", out.write);
    in.integer("free_mb", out.free_mb, -1, INT64_MAX);
}

std::string look_at_hostname() {
    Json out = Json::array();
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host_name().c_str(), nullptr, &hints, &list) == 0) {
        for (const addrinfo* item = list; item != nullptr && out.size() < 8; item = item->ai_next) {
            out.push_back(interface_address(item->ai_addr));
        }
        ::freeaddrinfo(list);
    }
    return dump_json(out);
}

void take_hostname(const std::string& answer, NodeFacts& out) {
    const auto json = parse_json(answer);
    out.hostname_answered = json.has_value();
    if (!json) {
        return;
    }
    for (const Json& item : *json) {
        out.hostname_addresses.push_back(item.get<std::string>());
    }
}

void take_versions(const std::string& answer, NodeFacts& out) {
    const auto json = parse_json(answer);
    if (!json) {
        return;
    }
    for (const auto& [name, value] : json->items()) {
        out.versions[name] = value.get<std::string>().substr(0, 200);
    }
}

}  // namespace lockstep
