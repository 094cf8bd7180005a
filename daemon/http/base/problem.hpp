// RFC 9457 problem documents: the only shape an error leaves this server in. Pure; any thread.
#pragma once

#include "daemon/http/base/message.hpp"
#include "job/base/result.hpp"

#include <string>
#include <string_view>

namespace lockstep {

// The status an Errc has when the handler does not know better: invalid 400, denied 403,
// not_found 404, conflict 409, corrupt and internal 500, exhausted, unavailable and cancelled 503,
// timed_out 504.
int status_of(Errc code);
// The same of what was to be stored: exhausted is a full disk, 507.
int storing_status_of(Errc code);

// {type, title, status, detail, errors?}. `type` is urn:lockstep:problem:<word of the Errc>.
// 503 carries Retry-After: 1. The text of internal and corrupt errors stays in the log.
HttpResponse problem(const Error& error);
HttpResponse problem(const Error& error, int status);
// A problem of the protocol itself: `type` is urn:lockstep:problem:http_<status>.
HttpResponse protocol_problem(int status, std::string_view detail);

}  // namespace lockstep
