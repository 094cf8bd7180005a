// What NCCL's Inspector has posted of a rank in some seconds, as a table for people: a line for
// each communicator, operation, range of message sizes and algorithm. At most
// limits::kInspectorTableRows of them; what comes beyond is counted. Pure; any thread, one at a
// time.
#pragma once

#include "job/agent/nccl/inspector_metrics.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

class InspectorTable {
  public:
    void take(const InspectorPoint& point);
    // "": nothing has come. The largest messages of each operation first.
    std::string text() const;

  private:
    struct Key {
        std::size_t operation = 0;
        std::uint64_t bytes = 0;
        std::uint64_t ranks = 0;
        std::uint64_t nodes = 0;
        std::string communicator{};
        std::string algorithm{};
        bool operator<(const Key& other) const;
    };
    struct Row {
        std::uint64_t values = 0;
        double sum = 0;  // of bytes a second
        double least = 0;
        std::uint64_t times = 0;
        double seconds = 0;  // of all
        double longest = 0;
    };
    std::map<Key, Row> rows_;
    std::uint64_t left_out_ = 0;
};

}  // namespace lockstep
