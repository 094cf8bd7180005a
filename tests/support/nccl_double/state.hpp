// What the double's NCCL and its driver share.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#define DOUBLE extern "C" __attribute__((visibility("default")))

namespace nccl_double {

// The word's numbers after `name` and each ':' or '='; nothing if there is no such word, or the
// first of several numbers is not `first`.
std::vector<long> directive(const std::string& name, long first = -1);

// Whether an operation is done. The newest one of each stream; null: it never had one.
struct Done {
    std::atomic<bool> done{false};
};
void set_newest(void* stream, std::shared_ptr<Done> operation);
std::shared_ptr<Done> newest(void* stream);

}  // namespace nccl_double
