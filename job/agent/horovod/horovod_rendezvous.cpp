#include "job/agent/horovod/horovod_rendezvous.hpp"

#include "job/async/asio.hpp"
#include "job/async/one_request_server.hpp"
#include "job/base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

struct Path {
    std::string scope;
    std::string key;
};

// Exactly two parts, as they come: Horovod's are plain words.
std::optional<Path> parse_path(const std::string& target) {
    const auto slash = target.find('/', 1);
    if (target.empty() || target.front() != '/' || slash == std::string::npos || slash == 1 ||
        slash + 1 == target.size() || target.find('/', slash + 1) != std::string::npos ||
        target.size() > limits::kStoreKeyBytes) {
        return std::nullopt;
    }
    return Path{target.substr(1, slash - 1), target.substr(slash + 1)};
}

}  // namespace

struct HorovodRendezvous::State {
    State(ScopeSizes sizes, const HorovodRendezvousCaps& caps,
          std::unique_ptr<StoreGuard> its_guard)
        : guard(std::move(its_guard)), scopes(sizes, limits::kStoreKeys, caps.bytes) {}

    std::unique_ptr<StoreGuard> guard;
    HorovodScopes scopes;

    OneRequestServer::Answer answer(RequestParser& request);
};

Result<std::unique_ptr<HorovodRendezvous>> HorovodRendezvous::listen(
    TaskGroup& tasks, int bound, ScopeSizes sizes, HorovodRendezvousCaps caps,
    std::unique_ptr<StoreGuard> guard) {
    UniqueFd socket{::fcntl(bound, F_DUPFD_CLOEXEC, 0)};
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (!socket || ::fcntl(socket.get(), F_SETFL, O_NONBLOCK) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0) {
        return fail(errno_error("serve a rendezvous", errno));
    }
    // Of ranks of the generation before.
    while (UniqueFd{::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
    }
    tcp::acceptor acceptor{tasks.io()};
    ErrorCode ec;
    acceptor.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), socket.get(), ec);
    if (ec) {
        return fail(Errc::internal, "serve a rendezvous: " + ec.message());
    }
    socket.release();  // the acceptor has it
    auto state = std::make_unique<State>(sizes, caps, std::move(guard));
    OneRequestServer::Handlers handlers;
    handlers.name = "the rendezvous for the ranks";
    handlers.admits = [at = state.get()](int fd) { return !at->guard || at->guard->admits(fd); };
    handlers.answer = [at = state.get()](RequestParser& request) { return at->answer(request); };
    auto server = std::make_unique<OneRequestServer>(
        tasks, std::move(acceptor),
        OneRequestServer::Caps{caps.connections, limits::kHorovodHeadBytes, caps.value_bytes,
                               caps.transit_bytes, caps.patience},
        std::move(handlers));
    return std::unique_ptr<HorovodRendezvous>{
        new HorovodRendezvous{std::move(state), std::move(server)}};
}

HorovodRendezvous::HorovodRendezvous(std::unique_ptr<State> state,
                                     std::unique_ptr<OneRequestServer> server)
    : state_(std::move(state)), server_(std::move(server)) {}

HorovodRendezvous::~HorovodRendezvous() = default;

HorovodRendezvous::Totals HorovodRendezvous::totals() const {
    const OneRequestServer::Totals of_server = server_->totals();
    Totals out;
    out.connections = of_server.connections;
    out.keys = state_->scopes.keys();
    out.bytes = state_->scopes.bytes();
    out.transit = of_server.transit;
    out.requests = of_server.answered;
    out.refused = of_server.refused;
    return out;
}

OneRequestServer::Answer HorovodRendezvous::State::answer(RequestParser& request) {
    const auto path = parse_path(request.target());
    const std::string method = request.method();
    OneRequestServer::Answer out;
    if (!path) {
        out.status = 400;
    } else if (method == "GET") {
        out.body = scopes.get(path->scope, path->key);
        out.status = out.body ? 200 : 404;
    } else if (method == "PUT") {
        out.status = scopes.put(path->scope, path->key, request.take_body()) ? 200 : 503;
    } else if (method == "DELETE") {
        scopes.remove(path->scope, path->key);
    } else {
        out.status = 405;
    }
    return out;
}

}  // namespace lockstep
