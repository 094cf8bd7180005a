#include "daemon/control/actor/node_notes.hpp"

#include "job/base/limits.hpp"
#include "job/model/find_attempt.hpp"
#include "job/model/gpu_error.hpp"
#include "job/model/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

// No machine is called otherwise; "node 3" is one whose agent never called in.
bool is_name(const std::string& node) {
    return !node.empty() && node.size() <= limits::kTextBytes &&
           node.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
               "0123456789.-_") == std::string::npos;
}

struct Reader {
    const Job& job;
    const std::string& machine;
    NodeNotes out;

    std::string name_of(const std::string& node) const {
        return machine.empty() || !is_name(node) ? node : machine;
    }
    const Attempt* attempt(std::int32_t number) const { return find_attempt(job, number); }

    void blame(const Event& event, std::string_view kind, const std::string& node,
               std::int32_t attempt_number, std::int32_t generation, std::string_view message,
               std::int32_t gpu = -1) {
        NodeFault fault;
        fault.node = name_of(node);
        if (!is_name(fault.node)) {
            return;
        }
        fault.time = event.time;
        fault.kind = kind;
        fault.job = job.id;
        fault.user = job.user;
        fault.attempt = attempt_number;
        fault.generation = generation;
        fault.gpu = gpu;
        fault.message = message.substr(0, limits::kTextBytes);
        out.faults.push_back(std::move(fault));
    }

    void read(const Event& event, const event::FaultSeen& e) {
        const Attempt* in = attempt(e.attempt);
        if (in == nullptr || e.slot < 0) {
            return;  // of ranks: what it comes to, the generation's end says
        }
        const auto claim = in->claims.find(e.slot);
        const std::string& node = claim == in->claims.end() ? e.node : claim->second.node;
        if (e.cause_class == CauseClass::gpu_fault) {
            blame(event, to_string(e.cause_class), node, e.attempt, e.generation, e.message);
        } else if (e.cause_class == CauseClass::node_lost) {
            blame(event, e.check.empty() ? to_string(e.cause_class) : "preflight", node, e.attempt,
                  e.generation, e.message);
        }
    }
    void read(const Event& event, const event::GpuXid& e) {
        if (!is_xid_of_program(e.xid)) {
            blame(event, to_string(EventKind::gpu_xid), e.node, e.attempt, e.generation,
                  "XID " + std::to_string(e.xid) + " of GPU " + std::to_string(e.gpu), e.gpu);
        }
    }
    void read(const Event& event, const event::AnomalySeen& e) {
        if (e.anomaly == kNodeStraggler || e.anomaly == kNodeSlow) {
            blame(event, e.anomaly, e.node, e.attempt, e.generation, e.message);
        }
    }
    void end(const Event& event, const Cause& cause, std::int32_t in, std::int32_t generation) {
        if (cause.kind == CauseClass::hang || cause.kind == CauseClass::gpu_fault) {
            blame(event, to_string(cause.kind), cause.node, in, generation, cause.message);
        }
    }
    void read(const Event& event, const event::GenerationEnded& e) {
        const Attempt* in = attempt(e.attempt);
        const bool lost =
            in != nullptr && std::any_of(in->lost.begin(), in->lost.end(), [&](const auto& one) {
                return one.second.kind == e.cause.kind && one.second.node == e.cause.node;
            });
        if (!lost) {  // else it was said when the node was
            end(event, e.cause, e.attempt, e.generation);
        }
    }
    void read(const Event& event, const event::AttemptCreated& e) {
        // With one machine there is no other to take.
        if (e.attempt < 2 || !machine.empty()) {
            return;
        }
        for (const std::string& node : nodes_to_exclude(job)) {
            blame(event, kNodeExcluded, node, e.attempt, 0,
                  "attempt " + std::to_string(e.attempt) + " goes without it");
        }
    }
    void read(const Event& event, const event::AttemptEnded& e) {
        const Attempt* in = attempt(e.attempt);
        if (in == nullptr) {
            return;
        }
        const Generation* last = in->generations.empty() ? nullptr : &in->generations.back();
        if (last != nullptr && e.cause.kind == CauseClass::hang) {
            end(event, e.cause, e.attempt, last->number);
        }
        const bool from_outside =
            e.cause.kind == CauseClass::preempted || e.cause.kind == CauseClass::time_limit ||
            e.cause.kind == CauseClass::scheduler || e.cause.kind == CauseClass::cancelled_by_user;
        if (from_outside && (last == nullptr || !failed_before(event, *last))) {
            out.absolved = NodesAbsolved{job.id, e.attempt, last == nullptr ? 0 : last->number};
        }
        note_ends(event, *in);
    }
    // Whether the generation had failed before anybody wanted the end of its attempt: a node that
    // was lost in it then was not lost by that end.
    bool failed_before(const Event& end, const Generation& last) const {
        if (!last.first_failure || last.first_failure->kind != CauseClass::node_lost) {
            return false;
        }
        return job.cancel_requested_at != 0
                   ? last.failure_heard_at < job.cancel_requested_at
                   : end.time - last.failure_heard_at >
                         std::chrono::milliseconds{limits::kEndTakes}.count();
    }
    // A node has a part in an attempt once; it was well if ranks ran and nothing was its fault.
    void note_ends(const Event& event, const Attempt& in) {
        const bool ran = in.preflight_passed ||
                         std::any_of(in.generations.begin(), in.generations.end(),
                                     [](const Generation& one) { return one.running_at != 0; });
        std::map<std::string, bool> nodes;
        for (const auto& [slot, claim] : in.claims) {
            const std::string name = name_of(claim.node);
            if (is_name(name)) {
                const auto known = nodes.emplace(name, ran).first;
                known->second = known->second && !in.lost.contains(slot);
            }
        }
        const auto unwell = [&](const std::string& node) {
            if (const auto found = nodes.find(name_of(node)); found != nodes.end()) {
                found->second = false;
            }
        };
        for (const Generation& one : in.generations) {
            if (one.cause.kind == CauseClass::hang || one.cause.kind == CauseClass::gpu_fault) {
                unwell(one.cause.node);
            }
        }
        for (const event::GpuXid& one : in.xids) {
            if (!is_xid_of_program(one.xid)) {
                unwell(one.node);
            }
        }
        for (const auto& [node, healthy] : nodes) {
            out.ended.push_back({node, event.time, healthy, in.number});
        }
    }
    template <class Other>
    void read(const Event&, const Other&) {}
};

}  // namespace

std::string one_machine(Scheduler& scheduler) {
    if (!scheduler.is_one_machine()) {
        return "";
    }
    const Cluster cluster = scheduler.cluster();
    return cluster.nodes.size() == 1 ? cluster.nodes.front().name : "";
}

NodeNotes notes_of(const Job& job, const std::vector<Event>& events, const std::string& machine) {
    Reader reader{job, machine, {}};
    for (const Event& event : events) {
        std::visit([&](const auto& data) { reader.read(event, data); }, event.data);
    }
    return std::move(reader.out);
}

}  // namespace lockstep
