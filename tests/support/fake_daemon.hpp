// A daemon as far as an agent can tell: a WebSocket server on 127.0.0.1, port 0, that records every
// message and plays the daemon's part of the protocol. Everything happens inside run_until(), on
// the test's thread. Beast stays in the .cpp.
#pragma once

#include "job/async/asio.hpp"
#include "job/model/spec/spec.hpp"
#include "job/model/wire/batch.hpp"
#include "job/model/wire/wire.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::test {

class FakeDaemon {
  public:
    struct Options {
        std::int32_t nodes = 1;
        std::int32_t ranks_per_node = 1;
        bool start = true;           // answer READY of all with START
        bool acknowledge = true;     // events and batches at once
        bool stop_when_done = true;  // STOP once every node has said DONE
        int refuse_upgrades = 0;     // answer that many upgrades with 401
    };
    FakeDaemon(JobSpec spec, Options options);
    ~FakeDaemon();

    // Writes agent.json with this daemon's address.
    void write_attempt_file(const std::filesystem::path& directory) const;
    // Runs until `done` holds; false if that takes longer than `patience`.
    bool run_until(const std::function<bool()>& done,
                   std::chrono::milliseconds patience = std::chrono::seconds{90});

    // The daemon dies: its connections break, nobody listens. restart(): another one, with another
    // identity, at another port, that knows what was acknowledged.
    void kill();
    void restart();
    void send(std::int32_t node_rank, const wire::DaemonMessage& message);

    template <class M>
    std::vector<M> all() const {
        std::vector<M> out;
        for (const auto& message : messages) {
            if (const auto* found = std::get_if<M>(&message)) {
                out.push_back(*found);
            }
        }
        return out;
    }
    template <class M>
    std::size_t count() const {
        return all<M>().size();
    }
    // The rows of a column over all batches, without repeats of a batch.
    std::vector<double> values(std::string_view column) const;

    std::vector<wire::AgentMessage> messages;  // as they came, from all nodes
    std::vector<Batch> batches;
    std::vector<std::string> tickets;  // of every upgrade request
    Options options;
    std::int32_t generation = 1;
    wire::Welcome welcome;
    std::uint64_t acked_event = 0;
    std::uint64_t acked_batch = 0;

  private:
    struct Connection;
    Task<void> listen(std::shared_ptr<tcp::acceptor> acceptor);
    Task<void> serve(std::shared_ptr<Connection> connection);
    Task<void> write(std::shared_ptr<Connection> connection);
    void send_to(const std::shared_ptr<Connection>& connection, const wire::DaemonMessage& message);
    void take(const std::shared_ptr<Connection>& connection, const wire::AgentMessage& message);
    void take(const std::shared_ptr<Connection>& connection, const Batch& batch);
    void open();

    net::io_context io_{1};
    std::shared_ptr<tcp::acceptor> acceptor_;
    std::vector<std::shared_ptr<Connection>> connections_;
    std::vector<wire::Join> joins_;
    std::vector<bool> joined_, ready_, done_;
    std::uint16_t port_ = 0;
};

}  // namespace lockstep::test
