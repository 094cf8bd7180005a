// Where lockstepd listens, which of it speaks TLS, and what it tells the agents. Off loopback
// nothing is served without TLS. Blocking; start-up only.
#pragma once

#include "daemon/http/auth/certificate.hpp"
#include "daemon/lockstepd/settings.hpp"
#include "job/async/asio.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct ListenAddress {
    std::string host;  // numeric, without []
    std::uint16_t port = 0;
    bool tls = false;
};
// "127.0.0.1:8470", "[::1]:8470", "0.0.0.0:0". invalid: not an address and a port. `always`: TLS on
// loopback too; elsewhere it is never left out.
Result<ListenAddress> parse_listen(const std::string& text, bool always);

struct ListenPlan {
    ListenAddress api;
    std::optional<ListenAddress> agents;   // nothing: the same as api
    std::optional<ListenAddress> metrics;  // nothing: the same as api
    bool tls() const;
};
// invalid: a setting, by name. With Slurm agents come from other machines: unless they are told
// where, they get a listener of their own on this machine's first address.
Result<ListenPlan> plan_listeners(const DaemonSettings& settings);

struct TlsSetup {
    std::shared_ptr<TlsContext> context;
    std::string fingerprint;
    UnixMillis not_after = 0;
};
// The configured certificate, or the one in <data>/tls, made at the first start. Logs the
// fingerprint and writes it to <data>/fingerprint (0644). invalid: the configured one is not good.
Result<TlsSetup> set_up_tls(const DaemonSettings& settings, const ListenPlan& plan,
                            const std::filesystem::path& data, UnixMillis now);

// How a client of another machine reaches a listener; a wildcard is this machine's first address.
std::string url_for_others(const tcp::endpoint& bound, bool tls);
// How a client of this machine does; a wildcard is loopback.
std::string url_for_us(const tcp::endpoint& bound, bool tls);
// What the Host header may carry beyond --allowed-host: this machine's name, the agents' URL's.
std::vector<std::string> own_names(const DaemonSettings& settings);

}  // namespace lockstep
