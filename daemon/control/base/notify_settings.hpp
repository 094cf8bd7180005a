// Where lockstepd may send the notices of jobs (--notify-hosts, --sendmail), and what of a
// specification's `notify` it refuses for that. Values; any thread.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/notify.hpp"
#include "job/model/spec/spec.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct NotifySettings {
    bool webhooks = true;  // false: none is sent
    // The only hosts that are, in lower case; "*.example.org" is every host below it. Empty: all
    // but those of is_own_address().
    std::vector<std::string> hosts{};
    std::string sendmail{};  // absolute path; "" = no mail is sent
};

// Of the two settings. hosts: "any", "none", or names with commas; sendmail: a program, "none", or
// "" = /usr/sbin/sendmail if it is there. invalid: what is wrong with them.
Result<NotifySettings> plan_notify(std::string_view hosts, const std::string& sendmail);

// Addresses behind which lockstepd's own machine answers, or a service that tells it secrets (a
// cloud's metadata): loopback, link-local, unspecified, multicast. A job's user must not reach them
// through lockstepd.
bool is_own_address(const net::ip::address& address);

// Why nothing may be sent to the target; "" = it may. `user` is whom `mail` is for.
std::string why_not_notified(const NotifyTarget& target, const std::string& user,
                             const NotifySettings& settings);
// invalid, with /notify/<i> of each target that is refused.
Status check_notify(const JobSpec& spec, const std::string& user, const NotifySettings& settings);

}  // namespace lockstep
