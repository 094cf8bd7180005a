#include "daemon/control/base/notify_settings.hpp"

#include "job/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep {
namespace {

constexpr const char* kUsualSendmail = "/usr/sbin/sendmail";

std::string lowered(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

bool is_listed(const std::string& host, const std::vector<std::string>& hosts) {
    return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& one) {
        return one.starts_with("*.") ? host.size() > one.size() - 1 && host.ends_with(one.substr(1))
                                     : host == one;
    });
}

// Metadata services of clouds that are at no link-local address: of Azure, Alibaba and Oracle.
bool is_metadata_v4(const net::ip::address_v4::bytes_type& bytes) {
    constexpr std::array<net::ip::address_v4::bytes_type, 3> kServices{
        {{168, 63, 129, 16}, {100, 100, 100, 200}, {192, 0, 0, 192}}};
    return std::find(kServices.begin(), kServices.end(), bytes) != kServices.end();
}

bool is_own_v4(const net::ip::address_v4& address) {
    const auto bytes = address.to_bytes();
    // 0.0.0.0/8 is this host (RFC 1122 §3.2.1.3), 169.254.0.0/16 link-local and metadata services.
    return bytes[0] == 0 || bytes[0] == 127 || (bytes[0] == 169 && bytes[1] == 254) ||
           address.is_multicast() || bytes[0] >= 240 || is_metadata_v4(bytes);
}

// With an IPv4 address in its last four bytes that a connection goes to.
bool holds_v4(const net::ip::address_v6::bytes_type& bytes) {
    constexpr std::array<unsigned char, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    constexpr std::array<unsigned char, 12> kCompatible{};
    constexpr std::array<unsigned char, 12> kNat64{0, 0x64, 0xFF, 0x9B};  // RFC 6052 §2.1
    const auto begins_with = [&](const std::array<unsigned char, 12>& front) {
        return std::equal(front.begin(), front.end(), bytes.begin());
    };
    return begins_with(kMapped) || begins_with(kCompatible) || begins_with(kNat64);
}

// Those of Amazon and Google on IPv6: unique local addresses as any other.
bool is_metadata_v6(const net::ip::address_v6::bytes_type& bytes) {
    constexpr net::ip::address_v6::bytes_type kAmazon{0xFD, 0x00, 0x0E, 0xC2, 0, 0, 0,    0,
                                                      0,    0,    0,    0,    0, 0, 0x02, 0x54};
    constexpr net::ip::address_v6::bytes_type kGoogle{0xFD, 0x20, 0, 0xCE, 0, 0, 0,    0,
                                                      0,    0,    0, 0,    0, 0, 0x02, 0x54};
    return bytes == kAmazon || bytes == kGoogle;
}

}  // namespace

Result<NotifySettings> plan_notify(std::string_view hosts, const std::string& sendmail) {
    NotifySettings out;
    if (hosts == "none") {
        out.webhooks = false;
    } else if (hosts != "any") {
        for (const std::string& word : split(hosts, ',')) {
            std::string host = lowered(trim(word));
            const std::string_view name =
                std::string_view{host}.substr(host.starts_with("*.") ? 2 : 0);
            const bool port = std::count(name.begin(), name.end(), ':') == 1;  // IPv6 has more
            if (name.empty() || port || name.find_first_of("*/@ \t[]") != std::string_view::npos) {
                return fail(Errc::invalid,
                            "notify-hosts: any, none, or names of hosts with commas, without "
                            "scheme and port; *.example.org is every host below it");
            }
            out.hosts.push_back(std::move(host));
        }
    }
    if (sendmail == "none") {
        return out;
    }
    if (!sendmail.empty() && (sendmail.front() != '/' || ::access(sendmail.c_str(), X_OK) != 0)) {
        return fail(Errc::invalid,
                    "sendmail: must be the absolute path of a program, or none: " + sendmail);
    }
    const std::string path = sendmail.empty() ? kUsualSendmail : sendmail;
    out.sendmail = ::access(path.c_str(), X_OK) == 0 ? path : "";
    return out;
}

bool is_own_address(const net::ip::address& address) {
    if (address.is_v4()) {
        return is_own_v4(address.to_v4());
    }
    const net::ip::address_v6 six = address.to_v6();
    const auto bytes = six.to_bytes();
    if (six.is_loopback() || six.is_unspecified() || six.is_link_local() || six.is_multicast() ||
        is_metadata_v6(bytes)) {
        return true;
    }
    return holds_v4(bytes) && is_own_v4(net::ip::address_v4{net::ip::address_v4::bytes_type{
                                  bytes[12], bytes[13], bytes[14], bytes[15]}});
}

std::string why_not_notified(const NotifyTarget& target, const std::string& user,
                             const NotifySettings& settings) {
    if (target.kind == NotifyKind::mail) {
        if (settings.sendmail.empty()) {
            return "this lockstepd sends no mail: it has no sendmail (--sendmail)";
        }
        return target.address.empty() && !is_mail_address(user)
                   ? "the user's name is no mail address: say mail:address"
                   : "";
    }
    if (!settings.webhooks) {
        return "this lockstepd sends no webhooks (--notify-hosts none)";
    }
    if (!settings.hosts.empty()) {
        return is_listed(target.host, settings.hosts)
                   ? ""
                   : target.host +
                         " is not among the hosts that this lockstepd sends webhooks to "
                         "(--notify-hosts)";
    }
    // A name is looked up, and its addresses looked at, when something is sent.
    ErrorCode ec;
    const auto address = net::ip::make_address(target.host, ec);
    const bool own = target.host == "localhost" || target.host.ends_with(".localhost") ||
                     (!ec && is_own_address(address));
    return own ? target.host +
                     " is lockstepd's own machine, to which no webhooks are sent unless "
                     "--notify-hosts names it"
               : "";
}

Status check_notify(const JobSpec& spec, const std::string& user, const NotifySettings& settings) {
    std::vector<FieldError> errors;
    for (std::size_t i = 0; i < spec.notify.size(); ++i) {
        const auto target = parse_notify_target(spec.notify[i]);
        const std::string why = target ? why_not_notified(*target, user, settings)
                                       : std::string{target.error().message};
        if (!why.empty()) {
            errors.push_back({"/notify/" + std::to_string(i), why});
        }
    }
    return errors.empty() ? Status{} : Status{fail(field_errors(std::move(errors)))};
}

}  // namespace lockstep
