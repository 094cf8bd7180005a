// What a user has signed, and how often it may be used. The credential is munge's, made by the
// user's own process: munged says whose process that was. munge's lifetime and its guard against a
// second decoding are left out of account on purpose, as by flux-security's sign_munge: an attempt
// may be due weeks after the submission, and the helper keeps a lifetime and a count of its own.
#pragma once

#include "scheduler-integration/exec/config.hpp"
#include "scheduler-integration/exec/order.hpp"
#include "scheduler-integration/exec/person.hpp"

#include <cstdint>
#include <string>

namespace lockstep::exec {

struct Signature {
    Person signer;
    std::int64_t made_at = 0;  // Unix seconds, munged's word
    std::string hash;          // of the statement
};

// Who has signed the order's statement; "" and a reason if no permitted user has.
std::string verify(const Config& config, const Order& order, Signature& out);
// Whether it may be submitted by its age; "" or why not. Unix seconds.
std::string check_age(const Config& config, std::int64_t made_at, std::int64_t now);
// Whether it may still be submitted: not too old, not for another job, not too often. Counted
// durably before this returns ""; then `count` is a descriptor of the count, for take_back().
std::string count_use(const Config& config, const Order& order, const Signature& signature,
                      std::int64_t now, int& count);
// Whether the order's job was submitted with it: "" or why not. Counts are kept for longer than a
// signature is good, as long as a job may be there (limits::kExecCountsKept).
std::string find_use(const Config& config, const Order& order, const Signature& signature);
// Of a submission that Slurm has certainly not taken: it was no use. Needs no rights but the
// descriptor. What goes wrong leaves it counted, as does a helper that ends before. The signature
// stays that job's.
void take_back(int count, const char* job);
// Of verify(), without munge: whether the payload is what signs the statement for this audience.
std::string check_payload(const std::string& audience, const char* payload, std::size_t size,
                          const char* statement, std::string& hash);

}  // namespace lockstep::exec
