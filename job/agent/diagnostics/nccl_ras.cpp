#include "job/agent/diagnostics/nccl_ras.hpp"

#include "job/async/connect.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <array>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

constexpr std::uint16_t kPort = 28028;
constexpr std::size_t kRasLineBytes = 1024;

Error silent(const RasAddress& address, const std::string& why) {
    return Error{Errc::unavailable,
                 "no answer at " + address.host + ":" + std::to_string(address.port) + ": " + why};
}

Task<Result<std::string>> read_line(tcp::socket& socket) {
    std::string line;
    while (line.size() < kRasLineBytes && (line.empty() || line.back() != '\n')) {
        char letter = 0;
        ErrorCode ec;
        co_await socket.async_read_some(net::buffer(&letter, 1), into(ec));
        if (ec) {
            co_return fail(Errc::unavailable, ec.message());
        }
        line += letter;
    }
    co_return line;
}

Task<Status> write_line(tcp::socket& socket, std::string_view line) {
    while (!line.empty()) {
        ErrorCode ec;
        line.remove_prefix(
            co_await socket.async_write_some(net::buffer(line.data(), line.size()), into(ec)));
        if (ec) {
            co_return fail(Errc::unavailable, ec.message());
        }
    }
    co_return Status{};
}

// What follows the line; unavailable: nothing does.
Task<Result<std::string>> answer_to(tcp::socket& socket, std::string line) {
    if (const Status sent = co_await write_line(socket, line); !sent) {
        co_return fail(sent.error());
    }
    co_return co_await read_line(socket);
}

// Sends a line; the answer is one that begins with `expected`.
Task<Status> say(tcp::socket& socket, std::string line, std::string_view expected) {
    const auto answer = co_await answer_to(socket, std::move(line));
    LOCKSTEP_CO_TRY(answer);
    if (answer->compare(0, expected.size(), expected) != 0) {
        co_return fail(Errc::unavailable, "it is not NCCL: " + printable(trim(*answer)));
    }
    co_return Status{};
}

Task<Result<std::string>> read_all(tcp::socket& socket) {
    std::string out;
    std::array<char, 16'384> some{};
    while (out.size() < limits::kEvidenceFileBytes) {
        ErrorCode ec;
        const std::size_t got = co_await socket.async_read_some(net::buffer(some), into(ec));
        out.append(some.data(), got);
        if (ec == net::error::eof) {
            break;
        }
        if (ec && out.empty()) {
            co_return fail(Errc::unavailable, ec.message());
        }
        if (ec) {
            out += "\n[lockstep: the rest did not come: " + ec.message() + "]\n";
            break;
        }
    }
    co_return out;
}

Task<Result<std::string>> converse(tcp::socket& socket, std::int64_t seconds) {
    std::string line = "CLIENT PROTOCOL 2\n";
    auto good = co_await say(socket, line, "SERVER PROTOCOL ");
    LOCKSTEP_CO_TRY(good);
    // How long the process that answers waits for the others of its job.
    line = "TIMEOUT " + std::to_string(seconds) + "\n";
    good = co_await say(socket, line, "OK");
    LOCKSTEP_CO_TRY(good);
    line = "VERBOSE STATUS\n";
    if (const Status sent = co_await write_line(socket, line); !sent) {
        co_return fail(sent.error());
    }
    co_return co_await read_all(socket);
}

// Closes the socket when the time is over, and gives it to whoever may close it before.
class Deadline {
  public:
    Deadline(std::shared_ptr<tcp::socket> open, std::chrono::steady_clock::time_point until,
             std::shared_ptr<tcp::socket>& given)
        : timer_(open->get_executor(), until), given_(given) {
        given_ = open;
        timer_.async_wait([open](const ErrorCode& ec) {
            if (!ec) {
                ErrorCode ignored;
                open->close(ignored);
            }
        });
    }
    ~Deadline() { given_.reset(); }  // and the timer is cancelled
    Deadline(const Deadline&) = delete;
    Deadline& operator=(const Deadline&) = delete;

  private:
    net::steady_timer timer_;
    std::shared_ptr<tcp::socket>& given_;
};

Task<Result<std::string>> converse_on_diagnostics(tcp::socket& socket) {
    std::string line = "CLIENT PROTOCOL 2\n";
    const auto good = co_await say(socket, line, "SERVER PROTOCOL ");
    if (!good) {
        co_return fail(good.error());
    }
    line = "DIAGNOSTICS\n";
    const auto first = co_await answer_to(socket, line);
    if (!first) {
        co_return fail(first.error());
    }
    if (first->starts_with("ERROR: Unknown command")) {
        co_return std::string{};
    }
    if (first->starts_with("BUSY") || first->starts_with("ERROR")) {
        co_return fail(Errc::unavailable, printable(trim(*first)));
    }
    auto rest = co_await read_all(socket);
    if (!rest) {
        co_return fail(rest.error());
    }
    co_return *first + *rest;
}

// All up to the end of the stream.
Task<tl::expected<std::string, RasSilence>> read_status(tcp::socket& socket) {
    std::string out;
    std::array<char, 16'384> some{};
    while (true) {
        ErrorCode ec;
        const std::size_t got = co_await socket.async_read_some(net::buffer(some), into(ec));
        out.append(some.data(), got);
        if (ec == net::error::eof) {
            break;
        }
        if (ec || out.size() > limits::kRasAnswerBytes) {
            co_return tl::unexpected{ec ? RasSilence::silent : RasSilence::endless};
        }
    }
    co_return out;
}

Task<tl::expected<std::string, RasSilence>> converse_in_json(tcp::socket& socket) {
    std::string line = "CLIENT PROTOCOL 2\n";
    auto answer = co_await answer_to(socket, line);
    constexpr std::string_view kServer = "SERVER PROTOCOL ";
    if (!answer || answer->compare(0, kServer.size(), kServer) != 0) {
        co_return tl::unexpected{answer ? RasSilence::foreign : RasSilence::silent};
    }
    // How long NCCL waits for a process that does not answer.
    line = "TIMEOUT 2\n";
    answer = co_await answer_to(socket, line);
    if (!answer || *answer != "OK\n") {
        co_return tl::unexpected{answer ? RasSilence::foreign : RasSilence::silent};
    }
    line = "SET FORMAT json\n";
    answer = co_await answer_to(socket, line);
    if (!answer || *answer != "OK\n") {
        co_return tl::unexpected{answer ? RasSilence::no_json : RasSilence::silent};
    }
    line = "STATUS\n";
    const Status sent = co_await write_line(socket, line);
    if (!sent) {
        co_return tl::unexpected{RasSilence::silent};
    }
    co_return co_await read_status(socket);
}

}  // namespace

std::optional<RasAddress> ras_address(const std::vector<ProcessLook>& tree) {
    for (const ProcessLook& process : tree) {
        const auto value = [&](const char* name) {
            const auto found = process.environment.find(name);
            return found == process.environment.end() ? std::string{} : found->second;
        };
        const std::string text = value("NCCL_RAS_ADDR");
        if (value("NCCL_RAS_ENABLE") == "0" || (text.empty() && !process.nccl)) {
            continue;
        }
        RasAddress out{text.empty() ? "localhost" : text, kPort};
        // "host:port", ":port", "host" or "[::1]:port".
        const auto colon = text.rfind(':');
        if (colon != std::string::npos && text.find(']', colon) == std::string::npos) {
            const auto port = to_int(std::string_view{text}.substr(colon + 1));
            if (!port || *port < 1 || *port > UINT16_MAX) {
                continue;
            }
            out.host = colon == 0 ? "localhost" : text.substr(0, colon);
            out.port = static_cast<std::uint16_t>(*port);
        }
        if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']') {
            out.host = out.host.substr(1, out.host.size() - 2);
        }
        return out;
    }
    return std::nullopt;
}

static Endpoint endpoint_of(const RasAddress& address) {
    Endpoint out;
    out.host = address.host;
    out.port = std::to_string(address.port);
    return out;
}

Task<Result<std::string>> ask_ras(RasAddress address,
                                  std::chrono::steady_clock::time_point deadline,
                                  std::shared_ptr<tcp::socket>& socket) {
    const Endpoint endpoint = endpoint_of(address);
    auto connected = co_await connect_tcp(endpoint, deadline);
    if (!connected) {
        co_return fail(silent(address, connected.error().message));
    }
    const auto open = std::make_shared<tcp::socket>(std::move(*connected));
    const Deadline bounded{open, deadline, socket};
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(
        deadline - std::chrono::steady_clock::now());
    auto text = co_await converse(*open, std::max<std::int64_t>(1, left.count() - 1));
    if (!text) {
        co_return fail(silent(address, text.error().message));
    }
    co_return std::move(*text);
}

Task<Result<std::string>> ask_ras_diagnostics(RasAddress address,
                                              std::chrono::steady_clock::time_point deadline,
                                              std::shared_ptr<tcp::socket>& socket) {
    const Endpoint endpoint = endpoint_of(address);
    auto connected = co_await connect_tcp(endpoint, deadline);
    if (!connected) {
        co_return fail(connected.error());
    }
    const auto open = std::make_shared<tcp::socket>(std::move(*connected));
    const Deadline bounded{open, deadline, socket};
    co_return co_await converse_on_diagnostics(*open);
}

// Each node's NCCL_RAS_ADDR differs, since Lockstep gives it one: that is no finding. Other values
// of variables come last: there may be one for each node, and ras.txt has them all.
std::vector<std::string> diagnostics_found(std::string_view text) {
    constexpr std::string_view kBegins = " NCCL DIAG [INFO]";
    constexpr std::string_view kOurs = "NCCL_RAS_ADDR";
    std::vector<std::string> out;
    std::vector<std::string> values;
    for (const std::string& line : split(text, '\n')) {
        const auto at = line.find(kBegins);
        if (at == std::string::npos || line.find(kOurs, at) != std::string::npos) {
            continue;
        }
        const std::string_view found = std::string_view{line}.substr(at + kBegins.size());
        const bool is_value = found.find("NCCL_") != std::string_view::npos &&
                              found.find('=') != std::string_view::npos;
        (is_value ? values : out).push_back(printable(trim(found.substr(0, limits::kTextBytes))));
    }
    out.insert(out.end(), values.begin(), values.end());
    out.resize(std::min(out.size(), limits::kEvidenceGaps));
    return out;
}

Task<tl::expected<std::string, RasSilence>> ask_ras_status(
    RasAddress address, std::chrono::steady_clock::time_point deadline,
    std::shared_ptr<tcp::socket>& socket) {
    const Endpoint endpoint = endpoint_of(address);
    auto connected = co_await connect_tcp(endpoint, deadline);
    if (!connected) {
        co_return tl::unexpected{RasSilence::nobody};
    }
    const auto open = std::make_shared<tcp::socket>(std::move(*connected));
    const Deadline bounded{open, deadline, socket};
    co_return co_await converse_in_json(*open);
}

}  // namespace lockstep
