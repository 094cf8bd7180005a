// A mail as sendmail takes it. Pure; any thread.
#pragma once

#include "job/base/clock.hpp"
#include "job/model/notices.hpp"

#include <string>

namespace lockstep {

// A whole message for sendmail -i: header, empty line, text. `to` has passed is_mail_address();
// `id` names the message, so that a second delivery can be told from a second notice.
std::string mail_message(const Mail& mail, const std::string& to, const std::string& id,
                         UnixMillis time);

}  // namespace lockstep
