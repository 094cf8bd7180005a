#include "job/cli/client.hpp"

#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/listener.hpp"
#include "job/cli/terminal.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::cli {
namespace {

// What every problem document of lockstepd begins its type with; a proxy has another, or none.
constexpr std::string_view kProblemType = "urn:lockstep:problem:";

Errc code_of(int status) {
    switch (status) {
        case 401:
        case 403:
        case 421:
            return Errc::denied;
        case 404:
            return Errc::not_found;
        case 409:
        case 412:
        case 422:  // a key that was used for something else
            return Errc::conflict;
        case 408:
        case 504:
            return Errc::timed_out;
        case 429:
        case 507:
            return Errc::exhausted;
        default:
            return status >= 500 ? Errc::unavailable : Errc::invalid;
    }
}

// The daemon's own answers: no limits, a series of 256 ranks holds a million values.
Result<Json> parse_answer(const std::string& body) {
    Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
        return fail(Errc::corrupt, "the daemon's answer is not JSON");
    }
    return json;
}

// Of an answer that is no document: what a proxy, or lockstepd's port of TLS, says of it.
std::string words_instead(const ClientResponse& response) {
    const std::string location = response.header("Location");
    if (response.status >= 300 && response.status < 400 && !location.empty()) {
        return ", which points to " + location.substr(0, limits::kAnswerWordsShown);
    }
    const std::string_view words = trim(response.body);
    const bool plain = response.header("Content-Type").starts_with("text/plain");
    const bool brief = !words.empty() && words.size() <= limits::kAnswerWordsShown;
    return plain && brief ? ": " + std::string{words} : "";
}

Error problem(const ClientResponse& response) {
    const auto json = parse_answer(response.body);
    std::string detail;
    std::string type;
    std::vector<FieldError> fields;
    if (json) {
        type = text_at(*json, "type");
        detail = text_at(*json, "detail");
        detail = detail.empty() ? text_at(*json, "title") : detail;
        for (const Json& item : items_at(*json, "errors")) {
            fields.push_back({text_at(item, "pointer"), text_at(item, "message")});
        }
    }
    if (detail.empty()) {
        detail = "the daemon answered with status " + std::to_string(response.status) +
                 words_instead(response);
    }
    Error error{code_of(response.status), std::move(detail), std::move(fields)};
    if (response.status >= 500 && type.starts_with(kProblemType)) {
        error.retry_after_s = 1;  // lockstepd is there; see nobody_answered()
    }
    return error;
}

// Requests to one daemon. One of this user that shows another certificate than before, since its
// own was renewed, is known by what it has written to its data directory. Each connection with a
// token and without TLS looks who listens: views go on for days, and lockstepd may end meanwhile.
// Any thread.
class Sender {
  public:
    Sender(Endpoint endpoint, const Access& access)
        : endpoint_(std::move(endpoint)),
          prefix_(url_path(access.url)),
          fingerprint_file_(access.fingerprint_file),
          listeners_(access.listeners),
          guarded_(!access.token.empty() && !endpoint_.tls && endpoint_.unix_path.empty()) {}

    Result<ClientResponse> send(ClientRequest request) {
        request.target.insert(0, prefix_);
        Endpoint endpoint = now();
        if (guarded_) {
            return send_unless_to_a_stranger(std::move(endpoint), std::move(request));
        }
        auto answer = http_request_now(endpoint, request);
        // Denied: nothing has been sent.
        if (answer || answer.error().code != Errc::denied || fingerprint_file_.empty()) {
            return answer;
        }
        auto renewed = read_fingerprint(fingerprint_file_);
        if (!renewed || *renewed == endpoint.fingerprint) {
            return answer;
        }
        endpoint.fingerprint = std::move(*renewed);
        pin(endpoint.fingerprint);
        return http_request_now(endpoint, std::move(request));
    }

  private:
    Result<ClientResponse> send_unless_to_a_stranger(Endpoint endpoint, ClientRequest request) {
        const auto port = static_cast<std::uint16_t>(to_int(endpoint.port).value_or(0));
        const auto stranger = std::make_shared<std::optional<uid_t>>();
        endpoint.may_connect = [this, port, stranger](const net::ip::address& address) {
            const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
            const net::ip::address plain =
                mapped ? net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6()) : address;
            const auto found =
                plain.is_loopback() ? stranger_at(plain, port, listeners_) : std::nullopt;
            if (found) {
                *stranger = found;
            }
            return !found;
        };
        auto answer = http_request_now(endpoint, std::move(request));
        const std::optional<uid_t> listener = *stranger;
        if (answer || answer.error().code != Errc::invalid || !listener) {
            return answer;
        }
        return fail(Errc::denied, "the token was not sent: at " + endpoint.authority() + " " +
                                      user_text(*listener) +
                                      " listens; if that is lockstepd's user, lockstep login "
                                      "http://" +
                                      endpoint.authority() + prefix_ + " keeps it");
    }
    Endpoint now() {
        const std::lock_guard lock{mutex_};
        return endpoint_;
    }
    void pin(const std::string& fingerprint) {
        const std::lock_guard lock{mutex_};
        endpoint_.fingerprint = fingerprint;
    }

    std::mutex mutex_;
    Endpoint endpoint_;
    const std::string prefix_;
    const std::string fingerprint_file_;
    const std::vector<uid_t> listeners_;
    const bool guarded_;
};

}  // namespace

Client::Client(Send send, std::string where, std::string token, std::string token_from)
    : send_(std::move(send)),
      where_(std::move(where)),
      token_(std::move(token)),
      token_from_(std::move(token_from)) {}

Result<Client> Client::connect(const Access& access) {
    auto endpoint = parse_endpoint(access.url);
    LOCKSTEP_TRY(endpoint);
    endpoint->fingerprint = access.fingerprint;
    if (!access.socket.empty()) {
        endpoint->unix_path = access.socket;
        endpoint->tls = false;
    }
    const auto sender = std::make_shared<Sender>(*endpoint, access);
    Send send = [sender](ClientRequest request) { return sender->send(std::move(request)); };
    std::string where = access.url;
    while (where.ends_with('/')) {
        where.pop_back();
    }
    return Client(std::move(send), std::move(where), access.token, access.token_from);
}

Result<ClientResponse> Client::request(ClientRequest request) const {
    if (!token_.empty()) {
        request.headers.emplace_back("Authorization", "Bearer " + token_);
    }
    request.headers.emplace_back("Accept", "application/json, text/plain");
    auto response = send_(std::move(request));
    if (!response) {
        if (response.error().code == Errc::denied) {
            *denied_by_ = DeniedBy::certificate;
        }
        return response;
    }
    if (response->status < 200 || response->status > 299) {
        Error error = problem(*response);
        if (error.code == Errc::denied) {
            *denied_by_ = response->status == 401 ? DeniedBy::token : DeniedBy::rights;
        }
        return fail(std::move(error));
    }
    return response;
}

Result<ClientResponse> Client::get(const std::string& target) const {
    ClientRequest asked;
    asked.target = target;
    return request(std::move(asked));
}

Result<Json> Client::get_json(const std::string& target) const {
    ClientRequest asked;
    asked.target = target;
    return ask_json(std::move(asked));
}

Result<Json> Client::ask_json(ClientRequest asked) const {
    const auto response = request(std::move(asked));
    LOCKSTEP_TRY(response);
    return parse_answer(response->body);
}

Result<Json> Client::post_json(const std::string& target, std::string body, Headers headers,
                               bool* unsent) const {
    ClientRequest asked;
    asked.unsent = unsent;
    asked.method = "POST";
    asked.target = target;
    if (!body.empty()) {
        headers.emplace_back("Content-Type", "application/json");
    }
    asked.body = std::move(body);
    asked.headers = std::move(headers);
    const auto response = request(std::move(asked));
    LOCKSTEP_TRY(response);
    return parse_answer(response->body);
}

std::string query_encode(std::string_view text) {
    static constexpr std::string_view kHex = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) != 0 || std::string_view("-._~").find(c) != std::string_view::npos) {
            out += c;
        } else {
            out += '%';
            out += kHex[byte >> 4U];
            out += kHex[byte & 15U];
        }
    }
    return out;
}

bool may_pass(const Error& error) {
    return error.code == Errc::unavailable || error.code == Errc::timed_out;
}

bool nobody_answered(const Error& error) {
    return error.code == Errc::unavailable && error.retry_after_s == 0;
}

}  // namespace lockstep::cli
