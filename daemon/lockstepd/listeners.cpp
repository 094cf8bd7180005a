#include "daemon/lockstepd/listeners.hpp"

#include "job/async/http_client.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/machine.hpp"
#include "job/base/text.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// Addresses that other machines may reach this one at, IPv4 first.
std::vector<std::string> machine_addresses() {
    std::vector<std::string> v4;
    std::vector<std::string> v6;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return v4;
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, ::freeifaddrs};
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        const bool up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
        if (!up || entry->ifa_addr == nullptr) {
            continue;
        }
        if (entry->ifa_addr->sa_family == AF_INET) {
            const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
            v4.push_back(net::ip::address_v4{ntohl(in->sin_addr.s_addr)}.to_string());
        } else if (entry->ifa_addr->sa_family == AF_INET6) {
            const auto* in = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
            net::ip::address_v6::bytes_type bytes{};
            std::copy(std::begin(in->sin6_addr.s6_addr), std::end(in->sin6_addr.s6_addr),
                      bytes.begin());
            const net::ip::address_v6 address{bytes};
            if (!address.is_link_local()) {
                v6.push_back(address.to_string());
            }
        }
    }
    v4.insert(v4.end(), v6.begin(), v6.end());
    return v4;
}

std::string url(const net::ip::address& address, std::uint16_t port, bool tls) {
    const std::string host =
        address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
    return (tls ? "https://" : "http://") + host + ":" + std::to_string(port);
}

// What the certificate names: nobody who pins it looks, browsers and curl do.
std::vector<std::string> certificate_names(const ListenPlan& plan) {
    std::vector<std::string> names{"localhost", "127.0.0.1", "::1"};
    const auto add = [&names](std::string name) {
        if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
    };
    add(host_name());
    for (const auto& one : {std::optional{plan.api}, plan.agents, plan.metrics}) {
        ErrorCode ec;
        if (one && !net::ip::make_address(one->host, ec).is_unspecified()) {
            add(one->host);
        } else if (one) {
            for (std::string& address : machine_addresses()) {
                add(std::move(address));
            }
        }
    }
    return names;
}

}  // namespace

Result<ListenAddress> parse_listen(const std::string& text, bool always) {
    const auto colon = text.rfind(':');
    const auto port = colon == std::string::npos ? std::nullopt : to_int(text.substr(colon + 1));
    if (!port || *port < 0 || *port > 65'535) {
        return fail(Errc::invalid, text + ": must be address:port");
    }
    ListenAddress out{text.substr(0, colon), static_cast<std::uint16_t>(*port), always};
    if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
        out.host = out.host.substr(1, out.host.size() - 2);
    }
    ErrorCode ec;
    const auto address =
        net::ip::make_address(out.host == "localhost" ? "127.0.0.1" : out.host, ec);
    if (ec) {
        return fail(Errc::invalid, text + ": must be an IP address and a port");
    }
    out.tls = always || !address.is_loopback();
    out.host = address.to_string();
    return out;
}

bool ListenPlan::tls() const {
    return api.tls || (agents && agents->tls) || (metrics && metrics->tls);
}

Result<ListenPlan> plan_listeners(const DaemonSettings& settings) {
    const bool always = settings.tls == "always";
    ListenPlan plan;
    auto api = parse_listen(settings.listen, always);
    if (!api) {
        return fail(api.error().in("listen"));
    }
    plan.api = std::move(*api);
    if (!settings.agent_listen.empty()) {
        auto agents = parse_listen(settings.agent_listen, always);
        if (!agents) {
            return fail(agents.error().in("agent-listen"));
        }
        plan.agents = std::move(*agents);
    } else if (settings.scheduler != "local") {
        ErrorCode ec;
        const auto addresses = machine_addresses();
        if (net::ip::make_address(plan.api.host, ec).is_loopback() && !addresses.empty()) {
            plan.agents = ListenAddress{addresses.front(), 0, true};
        }
    }
    if (!settings.metrics_listen.empty()) {
        auto metrics = parse_listen(settings.metrics_listen, always);
        if (!metrics) {
            return fail(metrics.error().in("metrics-listen"));
        }
        plan.metrics = std::move(*metrics);
    }
    if (settings.tls_certificate.empty() != settings.tls_key.empty()) {
        return fail(Errc::invalid, "tls-certificate and tls-key: give both or neither");
    }
    if (!settings.agent_url.empty()) {
        const auto told = parse_endpoint(settings.agent_url);
        if (!told) {
            return fail(told.error().in("agent-url"));
        }
        if (told->tls != (plan.agents ? *plan.agents : plan.api).tls) {
            return fail(Errc::invalid,
                        "agent-url: https where agents are listened for with TLS, else http");
        }
    }
    return plan;
}

Result<TlsSetup> set_up_tls(const DaemonSettings& settings, const ListenPlan& plan,
                            const std::filesystem::path& data, UnixMillis now) {
    const bool own = settings.tls_certificate.empty();
    const auto certificate = own ? keep_certificate(data / "tls", certificate_names(plan), now)
                                 : read_certificate(settings.tls_certificate, settings.tls_key);
    LOCKSTEP_TRY(certificate);
    auto context = listener_tls(*certificate);
    LOCKSTEP_TRY(context);
    if (certificate->not_after < now) {
        log::warn("the certificate has expired; agents ignore that, other clients will not",
                  {{"fingerprint", certificate->fingerprint}});
    }
    const Status written =
        write_file_atomic(data / "fingerprint", certificate->fingerprint + "\n", 0644);
    LOCKSTEP_TRY(written);
    log::info("TLS", {{"fingerprint", certificate->fingerprint}});
    return TlsSetup{std::move(*context), certificate->fingerprint, certificate->not_after};
}

std::string url_for_others(const tcp::endpoint& bound, bool tls) {
    auto address = bound.address();
    if (address.is_unspecified()) {
        const auto known = machine_addresses();
        address = net::ip::make_address(known.empty() ? "127.0.0.1" : known.front());
    }
    return url(address, bound.port(), tls);
}

std::string url_for_us(const tcp::endpoint& bound, bool tls) {
    auto address = bound.address();
    if (address.is_unspecified()) {
        address = net::ip::make_address("127.0.0.1");
    }
    return url(address, bound.port(), tls);
}

std::vector<std::string> own_names(const DaemonSettings& settings) {
    std::vector<std::string> names = settings.allowed_hosts;
    names.push_back(host_name());
    if (const auto told = parse_endpoint(settings.agent_url); told) {
        names.push_back(told->host.find(':') == std::string::npos ? told->host
                                                                  : "[" + told->host + "]");
    }
    return names;
}

}  // namespace lockstep
