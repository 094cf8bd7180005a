#include "job/model/spec/notify.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

constexpr std::string_view kWebhook = "webhook:";
constexpr std::string_view kMail = "mail";
constexpr std::string_view kMailTo = "mail:";
constexpr std::string_view kHiddenPath = "/***";  // what public_notify_target() leaves

// RFC 5321 §4.5.3.1: of the name and of the host.
constexpr std::size_t kLocalPartBytes = 64;
constexpr std::size_t kMailHostBytes = 255;

bool is_letter_or_digit(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool is_host_name(std::string_view host) {
    return !host.empty() && host.size() <= kMailHostBytes && is_letter_or_digit(host.front()) &&
           is_letter_or_digit(host.back()) && std::all_of(host.begin(), host.end(), [](char c) {
               return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_';
           });
}

// Whether it is one is for the resolver to say: only that nothing else stands between brackets.
bool is_ipv6(std::string_view host) {
    return !host.empty() && host.size() <= 45 && host.find(':') != std::string_view::npos &&
           host.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos;
}

std::string lower_case(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// Of "host", "host:port", "[address]:port".
Status read_authority(std::string_view text, NotifyTarget& out) {
    std::string_view host = text.substr(0, text.find(':'));
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end == std::string_view::npos) {
            return fail(Errc::invalid, "misses the ] behind its IPv6 address");
        }
        host = text.substr(1, end - 1);
        text.remove_prefix(end + 1);
        if (!is_ipv6(host)) {
            return fail(Errc::invalid, "has no IPv6 address between its brackets");
        }
    } else {
        text.remove_prefix(host.size());
        if (!is_host_name(host)) {
            return fail(Errc::invalid, "names no host");
        }
    }
    out.host = lower_case(host);
    if (text.empty()) {
        out.port = out.tls ? "443" : "80";
        return {};
    }
    const auto port = text.front() == ':' ? to_int(text.substr(1)) : std::nullopt;
    if (!port || *port < 1 || *port > 65'535) {
        return fail(Errc::invalid, "has a port that is not 1..65535");
    }
    out.port = std::to_string(*port);
    return {};
}

Result<NotifyTarget> read_webhook(std::string_view url) {
    NotifyTarget out;
    out.kind = NotifyKind::webhook;
    out.tls = url.starts_with("https://");
    if (!out.tls && !url.starts_with("http://")) {
        return fail(Errc::invalid, "must be webhook:https://… (or http://)");
    }
    const bool plain = std::all_of(url.begin(), url.end(), [](char c) {
        return static_cast<unsigned char>(c) > ' ' && static_cast<unsigned char>(c) < 0x7F;
    });
    if (!plain || url.find('#') != std::string_view::npos) {
        return fail(Errc::invalid, "holds a blank, a # or a character that is not ASCII");
    }
    url.remove_prefix(out.tls ? 8 : 7);
    const auto end = std::min(url.find_first_of("/?"), url.size());
    const std::string_view authority = url.substr(0, end);
    if (authority.find('@') != std::string_view::npos) {
        return fail(Errc::invalid, "has a user name, which is not supported");
    }
    LOCKSTEP_TRY(read_authority(authority, out));
    url.remove_prefix(end);
    out.path = (url.starts_with('/') ? "" : "/") + std::string{url};
    if (out.path == kHiddenPath) {
        return fail(Errc::invalid,
                    "*** stands for a part that only the job's owner is shown: give the whole URL");
    }
    return out;
}

}  // namespace

std::string_view to_string(NotifyKind kind) {
    return kind == NotifyKind::webhook ? "webhook" : "mail";
}

bool is_mail_address(std::string_view text) {
    const auto at = text.find('@');
    const std::string_view name = text.substr(0, at);
    const bool good_name = !name.empty() && name.size() <= kLocalPartBytes &&
                           (is_letter_or_digit(name.front()) || name.front() == '_') &&
                           std::all_of(name.begin(), name.end(), [](char c) {
                               return is_letter_or_digit(c) ||
                                      std::string_view{"_.%+=-"}.find(c) != std::string_view::npos;
                           });
    if (at == std::string_view::npos) {
        return good_name;
    }
    const std::string_view host = text.substr(at + 1);
    return good_name && is_host_name(host) && host.find('_') == std::string_view::npos;
}

Result<NotifyTarget> parse_notify_target(std::string_view text) {
    if (text.starts_with(kWebhook)) {
        return read_webhook(text.substr(kWebhook.size()));
    }
    NotifyTarget out;
    if (text == kMail) {
        return out;
    }
    if (!text.starts_with(kMailTo)) {
        return fail(Errc::invalid, "must be webhook:https://…, mail, or mail:address");
    }
    out.address = text.substr(kMailTo.size());
    if (!is_mail_address(out.address)) {
        return fail(Errc::invalid, "is not mail:name@host");
    }
    return out;
}

std::string public_notify_target(std::string_view text) {
    const auto target = parse_notify_target(text);
    if (!target) {
        return "***";
    }
    if (target->kind != NotifyKind::webhook || target->path == "/") {
        return std::string{text};
    }
    const auto authority = text.find("://") + 3;
    return std::string{text.substr(0, text.find_first_of("/?", authority))} +
           std::string{kHiddenPath};
}

void mask_notify(Json& spec) {
    const auto targets = spec.is_object() ? spec.find("notify") : spec.end();
    if (targets == spec.end() || !targets->is_array()) {
        return;
    }
    for (Json& target : *targets) {
        target =
            target.is_string() ? public_notify_target(target.get_ref<const std::string&>()) : "***";
    }
}

void read_notify(ObjectReader& in, std::vector<std::string>& out, std::vector<FieldError>& errors) {
    const std::size_t faults = errors.size();
    in.strings("notify", out, limits::kNotifyTargets, limits::kNotifyTargetBytes);
    if (errors.size() != faults) {
        return;  // the numbers of those that are left would be wrong
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        const std::string pointer = in.pointer("notify") + "/" + std::to_string(i);
        const auto here = out.begin() + static_cast<std::ptrdiff_t>(i);
        if (const auto target = parse_notify_target(out[i]); !target) {
            errors.push_back({pointer, target.error().message});
        } else if (std::find(out.begin(), here, out[i]) != here) {
            errors.push_back({pointer, "is there already"});
        }
    }
}

}  // namespace lockstep
