// Where a job's user wants to be told what becomes of it: the targets of spec.notify. What is told
// is in notices.hpp. Pure; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class NotifyKind : std::uint8_t {
    webhook,  // webhook:https://…
    mail,     // mail, mail:address
};
std::string_view to_string(NotifyKind kind);  // a word of the metrics

struct NotifyTarget {
    NotifyKind kind = NotifyKind::mail;
    // Of a webhook. The host is in lower case, an IPv6 address without its brackets.
    bool tls = false;
    std::string host{};
    std::string port{};
    std::string path{};  // with the query; "/" if the URL has none
    // Of a mail; "" = the job's user.
    std::string address{};
};

// invalid: what is wrong with it. Takes what a chat service or sendmail can be given, no more: no
// user name or fragment in a URL, no address that is more than one name and one host.
Result<NotifyTarget> parse_notify_target(std::string_view text);

// Whether the text may be given to sendmail as a recipient: user, user@host. Never begins with a
// dash and holds nothing that a mail system takes for a file, a program or a list.
bool is_mail_address(std::string_view text);

// As others than the job's owner are shown it: a webhook without path and query, which are its
// secret.
std::string public_notify_target(std::string_view text);
// The same for all targets of a specification.
void mask_notify(Json& spec);

// /notify of a specification; each target once.
void read_notify(ObjectReader& in, std::vector<std::string>& out, std::vector<FieldError>& errors);

}  // namespace lockstep
