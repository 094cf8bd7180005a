// What the database remembers of nodes. Threads, transactions, errors: record_access.hpp.
#pragma once

#include "daemon/store/node_history.hpp"
#include "daemon/store/record_access.hpp"
#include "job/base/result.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

class NodeRecords : public RecordAccess {
  public:
    using RecordAccess::RecordAccess;

    // Inside a transaction. Also forgets what has become too old: there is no other time at which
    // it grows.
    Status add(const NodeNotes& notes);

    // Of the nodes with names from `first` to `last`, those of which anything is remembered.
    Result<std::map<std::string, NodeSummary>> summaries(const std::string& first,
                                                         const std::string& last, UnixMillis now);
    // With exclusions; newest first.
    Result<std::vector<NodeFault>> faults(const std::string& node, UnixMillis now,
                                          std::size_t limit);
};

}  // namespace lockstep
