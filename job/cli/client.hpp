// The API as the command line sees it: requests with the token, answers as JSON, problems
// (RFC 9457) as Errors. Blocks; one thread.
#pragma once

#include "job/async/http_client.hpp"
#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/cli/access.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::cli {

using Headers = std::vector<std::pair<std::string, std::string>>;
using Send = std::function<Result<ClientResponse>(ClientRequest)>;

// What denied a request: Errc::denied alone does not tell what helps.
enum class DeniedBy : std::uint8_t {
    nobody,
    certificate,  // the daemon's is not trusted, or another one; nothing was sent
    token,        // there is none, or it is no good (401)
    rights,       // it is good, but not for this (403); or the daemon takes no such request
};

class Client {
  public:
    // `where` names the daemon in messages, `token_from` where the token was found.
    Client(Send send, std::string where, std::string token, std::string token_from);
    // Over TCP. A certificate that the daemon of access.fingerprint_file has renewed is taken.
    // invalid: the URL. Requests are denied where the token would go in clear to a socket of this
    // machine whose user access.listeners does not have.
    static Result<Client> connect(const Access& access);

    const std::string& where() const { return where_; }
    const std::string& token_from() const { return token_from_; }
    // Of the newest request that was denied. Any thread.
    DeniedBy denied_by() const { return *denied_by_; }

    // Answers with a status of 2xx. unavailable, timed_out: no answer; otherwise the Errc that fits
    // the status, the problem's detail as message and its errors as fields. Of what lockstepd
    // itself cannot do at the moment (503), also when a retry may work.
    Result<ClientResponse> request(ClientRequest request) const;
    Result<ClientResponse> get(const std::string& target) const;
    Result<Json> get_json(const std::string& target) const;
    // One with a deadline of its own, or that another thread may end.
    Result<Json> ask_json(ClientRequest asked) const;
    // `unsent`: see ClientRequest.
    Result<Json> post_json(const std::string& target, std::string body, Headers headers = {},
                           bool* unsent = nullptr) const;

  private:
    Send send_;
    std::string where_;
    std::string token_;
    std::string token_from_;
    // Copies of the client share it, so that it can be copied.
    std::shared_ptr<std::atomic<DeniedBy>> denied_by_ =
        std::make_shared<std::atomic<DeniedBy>>(DeniedBy::nobody);
};

// Percent-encodes what is not unreserved (RFC 3986 §2.3).
std::string query_encode(std::string_view text);
// Nobody answered, or not now: the same request may work later.
bool may_pass(const Error& error);
// No lockstepd did: nothing is there, or a proxy that has none behind it.
bool nobody_answered(const Error& error);

}  // namespace lockstep::cli
