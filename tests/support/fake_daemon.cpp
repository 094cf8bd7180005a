#include "tests/support/fake_daemon.hpp"

#include "job/base/files.hpp"
#include "job/base/limits.hpp"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::test {

namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

namespace {
constexpr const char* kTicket = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
}

struct FakeDaemon::Connection {
    explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
    websocket::stream<tcp::socket> stream;
    std::deque<std::string> outgoing;
    bool writing = false;
    bool closed = false;
    std::int32_t node_rank = -1;
};

FakeDaemon::FakeDaemon(JobSpec spec, Options given) : options(given) {
    welcome.daemon = "daemon-1";
    // One of its own for each process: what ranks put into /tmp has the job's name.
    std::string number = std::to_string(::getpid());
    number.insert(0, 7 - std::min<std::size_t>(number.size(), 7), '0');
    welcome.job_id = "ls-01HZZZZZZZZZZZZZZZZ" + number;
    welcome.job_name = spec.name;
    welcome.attempt = 1;
    welcome.spec = to_json(spec);
    const auto nodes = static_cast<std::size_t>(options.nodes);
    joins_.resize(nodes);
    joined_.resize(nodes);
    ready_.resize(nodes);
    done_.resize(nodes);
    open();
}

FakeDaemon::~FakeDaemon() {
    kill();
    io_.stop();
}

void FakeDaemon::open() {
    acceptor_ =
        std::make_shared<tcp::acceptor>(io_, tcp::endpoint{net::ip::address_v4::loopback(), 0});
    port_ = acceptor_->local_endpoint().port();
    net::co_spawn(io_, listen(acceptor_), net::detached);
}

void FakeDaemon::kill() {
    ErrorCode ec;
    if (acceptor_) {
        acceptor_->close(ec);
    }
    for (const auto& connection : connections_) {
        connection->closed = true;
        connection->stream.next_layer().close(ec);
    }
    connections_.clear();
}

void FakeDaemon::restart() {
    welcome.daemon += "-next";
    open();
}

void FakeDaemon::write_attempt_file(const std::filesystem::path& directory) const {
    wire::AttemptFile file;
    file.url = "http://127.0.0.1:" + std::to_string(port_);
    file.ticket = kTicket;
    file.job_id = welcome.job_id;
    file.attempt = welcome.attempt;
    file.nodes = options.nodes;
    const auto written = write_file_atomic(directory / wire::kAttemptFileName,
                                           wire::encode_attempt_file(file), 0600);
    if (!written) {
        throw std::runtime_error(written.error().message);
    }
}

bool FakeDaemon::run_until(const std::function<bool()>& done, std::chrono::milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    io_.restart();
    while (!done()) {
        const auto now = std::chrono::steady_clock::now();
        if (now >= until) {
            return false;
        }
        // A condition outside (an agent that ends) is looked at every 10 ms.
        io_.run_one_for(std::min<std::chrono::steady_clock::duration>(
            until - now, std::chrono::milliseconds{10}));
        if (io_.stopped()) {
            io_.restart();
        }
    }
    return true;
}

Task<void> FakeDaemon::listen(std::shared_ptr<tcp::acceptor> acceptor) {
    for (;;) {
        ErrorCode ec;
        tcp::socket socket = co_await acceptor->async_accept(into(ec));
        if (ec) {
            co_return;
        }
        auto connection = std::make_shared<Connection>(std::move(socket));
        net::co_spawn(io_, serve(connection), net::detached);
    }
}

Task<void> FakeDaemon::serve(std::shared_ptr<Connection> connection) {
    ErrorCode ec;
    beast::flat_buffer buffer;
    http::request<http::string_body> request;
    co_await http::async_read(connection->stream.next_layer(), buffer, request, into(ec));
    if (ec) {
        co_return;
    }
    tickets.emplace_back(request[http::field::authorization]);
    const bool good =
        tickets.back() == std::string{"Bearer "} + kTicket && request.target() == "/v1/agent";
    if (!good || options.refuse_upgrades > 0) {
        --options.refuse_upgrades;
        http::response<http::string_body> refusal{http::status::unauthorized, 11};
        refusal.prepare_payload();
        co_await http::async_write(connection->stream.next_layer(), refusal, into(ec));
        co_return;
    }
    connection->stream.read_message_max(limits::kAgentFrameBytes);
    co_await connection->stream.async_accept(request, into(ec));
    if (ec) {
        co_return;
    }
    connections_.push_back(connection);
    for (;;) {
        beast::flat_buffer frame;
        co_await connection->stream.async_read(frame, into(ec));
        if (ec) {
            break;
        }
        const std::string_view bytes{static_cast<const char*>(frame.data().data()), frame.size()};
        if (connection->stream.got_binary()) {
            const auto batch = decode_batch(bytes);
            if (batch) {
                take(connection, *batch);
            }
        } else {
            const auto message = wire::decode_agent(bytes);
            if (message) {
                take(connection, *message);
            }
        }
    }
    connection->closed = true;
    std::erase(connections_, connection);
}

Task<void> FakeDaemon::write(std::shared_ptr<Connection> connection) {
    ErrorCode ec;
    while (!connection->outgoing.empty() && !ec && !connection->closed) {
        const std::string text = std::move(connection->outgoing.front());
        connection->outgoing.pop_front();
        connection->stream.text(true);
        co_await connection->stream.async_write(net::buffer(text), into(ec));
    }
    connection->writing = false;
}

void FakeDaemon::send_to(const std::shared_ptr<Connection>& connection,
                         const wire::DaemonMessage& message) {
    connection->outgoing.push_back(wire::encode(message));
    if (!std::exchange(connection->writing, true)) {
        net::co_spawn(io_, write(connection), net::detached);
    }
}

void FakeDaemon::send(std::int32_t node_rank, const wire::DaemonMessage& message) {
    for (const auto& connection : connections_) {
        if (connection->node_rank == node_rank) {
            send_to(connection, message);
        }
    }
}

void FakeDaemon::take(const std::shared_ptr<Connection>& connection, const Batch& batch) {
    batches.push_back(batch);
    if (options.acknowledge) {
        acked_batch = batch.seq;
        wire::Ack ack;
        ack.event = acked_event;
        ack.batch = acked_batch;
        send_to(connection, ack);
    }
}

void FakeDaemon::take(const std::shared_ptr<Connection>& connection,
                      const wire::AgentMessage& message) {
    messages.push_back(message);
    const auto all = [](const std::vector<bool>& flags) {
        return std::all_of(flags.begin(), flags.end(), [](bool flag) { return flag; });
    };
    const auto node = static_cast<std::size_t>(std::max(0, connection->node_rank));
    const auto acknowledge = [&](std::uint64_t event) {
        if (options.acknowledge) {
            acked_event = event;
            wire::Ack ack;
            ack.event = acked_event;
            ack.batch = acked_batch;
            send_to(connection, ack);
        }
    };
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
        connection->node_rank = hello->node_rank;
        welcome.generation = hello->generation;
        welcome.acked_batch = options.nodes == 1 ? acked_batch : 0;
        send_to(connection, welcome);
    } else if (const auto* join = std::get_if<wire::Join>(&message)) {
        joins_[node] = *join;
        joined_[node] = true;
        if (!all(joined_)) {
            return;
        }
        for (std::int32_t i = 0; i < options.nodes; ++i) {
            wire::World world;
            world.generation = generation;
            world.world_size = options.nodes * options.ranks_per_node;
            world.node_rank = i;
            world.first_rank = i * options.ranks_per_node;
            world.local_ranks = options.ranks_per_node;
            world.master_address = joins_[0].address;
            world.master_port = joins_[0].port;
            for (std::int32_t k = 0; k < options.nodes; ++k) {
                const wire::Join& theirs = joins_[static_cast<std::size_t>(k)];
                world.ports.insert(world.ports.end(), theirs.ports.begin(), theirs.ports.end());
                if (!theirs.ports.empty()) {
                    world.addresses.push_back(theirs.address);
                }
                world.hosts.push_back("host-" + std::to_string(k));
            }
            send(i, world);
        }
    } else if (std::holds_alternative<wire::Ready>(message)) {
        ready_[node] = true;
        for (std::int32_t i = 0; all(ready_) && options.start && i < options.nodes; ++i) {
            send(i, wire::Start{generation});
        }
    } else if (const auto* exited = std::get_if<wire::Exited>(&message)) {
        acknowledge(exited->event);
    } else if (const auto* fault = std::get_if<wire::Fault>(&message)) {
        acknowledge(fault->event);
    } else if (const auto* saved = std::get_if<wire::CheckpointSaved>(&message)) {
        acknowledge(saved->event);
    } else if (const auto* asked = std::get_if<wire::SaveAsked>(&message)) {
        acknowledge(asked->event);
    } else if (const auto* bye = std::get_if<wire::Bye>(&message)) {
        acknowledge(bye->event);
    } else if (const auto* done = std::get_if<wire::Done>(&message)) {
        acknowledge(done->event);
        done_[node] = true;
        for (std::int32_t i = 0; all(done_) && options.stop_when_done && i < options.nodes; ++i) {
            send(i, wire::Stop{"all done", 2000});
        }
    }
}

std::vector<double> FakeDaemon::values(std::string_view column) const {
    std::map<std::uint64_t, const Batch*> once;
    for (const Batch& batch : batches) {
        once[batch.seq] = &batch;
    }
    std::vector<double> out;
    for (const auto& [seq, batch] : once) {
        const BatchColumn* found = batch->find(column);
        for (std::size_t i = 0; found != nullptr && i < batch->rows(); ++i) {
            if (found->present[i] != 0) {
                out.push_back(found->values[i]);
            }
        }
    }
    return out;
}

}  // namespace lockstep::test
