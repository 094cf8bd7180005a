#include "daemon/lockstepd/remote_write.hpp"

#include "job/async/asio.hpp"
#include "job/base/log.hpp"

#include <chrono>
#include <utility>

namespace lockstep {
namespace {

bool is_loopback(const std::string& host) {
    ErrorCode ec;
    const auto address = net::ip::make_address(host, ec);
    return host == "localhost" || (!ec && address.is_loopback());
}

}  // namespace

Result<std::optional<telemetry::RemoteWriteSettings>> plan_remote_write(
    const DaemonSettings& settings) {
    const bool token = !settings.remote_write_token_file.empty();
    const bool user = !settings.remote_write_user.empty();
    if (settings.remote_write.empty()) {
        if (token || user || !settings.remote_write_password_file.empty()) {
            return fail(Errc::invalid, "remote-write: the URL is missing");
        }
        return std::optional<telemetry::RemoteWriteSettings>{};
    }
    auto out = telemetry::parse_remote_write(settings.remote_write);
    if (!out) {
        return fail(out.error().in("remote-write"));
    }
    if (token && user) {
        return fail(Errc::invalid, "remote-write-token-file and remote-write-user: give one");
    }
    if (user == settings.remote_write_password_file.empty()) {
        return fail(Errc::invalid,
                    "remote-write-user and remote-write-password-file: give both or neither");
    }
    if (settings.remote_write_user.find(':') != std::string::npos) {
        return fail(Errc::invalid, "remote-write-user: has no colon");  // RFC 7617 §2
    }
    out->token_file = settings.remote_write_token_file;
    out->user = settings.remote_write_user;
    out->password_file = settings.remote_write_password_file;
    out->timeout =
        std::chrono::milliseconds{static_cast<std::int64_t>(settings.remote_write_timeout * 1000)};
    const auto who = telemetry::authorization(*out);
    if (!who) {
        const char* name = token ? "remote-write-token-file" : "remote-write-password-file";
        return fail(Errc::invalid, Error{who.error()}.in(name).message);
    }
    if (!who->empty() && !out->endpoint.tls && !is_loopback(out->endpoint.host)) {
        log::warn("remote write sends its secret unencrypted: the URL is not https://",
                  {{"receiver", out->endpoint.authority()}});
    }
    return std::optional{std::move(*out)};
}

}  // namespace lockstep
