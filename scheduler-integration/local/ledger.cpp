#include "scheduler-integration/local/ledger.hpp"

#include "job/base/json.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

std::string plural(std::int64_t count, const std::string& word) {
    return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

}  // namespace

Ledger::Ledger(Machine capacity) : capacity_(std::move(capacity)) {
    for (auto number = static_cast<std::int32_t>(capacity_.gpu_names.size());
         number < capacity_.gpus; ++number) {
        capacity_.gpu_names.push_back(std::to_string(number));
    }
    capacity_.gpus = static_cast<std::int32_t>(capacity_.gpu_names.size());
}

Result<std::vector<std::string>> Ledger::admit(const Resources& resources) const {
    std::vector<FieldError> errors;
    const std::int64_t nodes = resources.allocated_nodes();
    const std::int64_t memory = nodes * resources.memory_mb_per_node;
    const std::int64_t gpus = nodes * resources.gpus_per_node;
    const std::int64_t ranks = resources.world_size();  // a spare has none
    const std::string here =
        nodes > 1 ? " on " + plural(nodes, "node") + " of this one machine" : "";
    if (nodes > limits::kLocalNodes) {
        errors.push_back({"/resources/nodes", "this machine runs jobs of at most " +
                                                  plural(limits::kLocalNodes, "node")});
    }
    if (memory > capacity_.memory_mb) {
        errors.push_back({"/resources/memory_mb_per_node",
                          "needs " + std::to_string(memory) + " MiB" + here + ", there are " +
                              std::to_string(capacity_.memory_mb) + " MiB"});
    }
    if (gpus > capacity_.gpus) {
        errors.push_back({"/resources/gpus_per_node", "needs " + plural(gpus, "GPU") + here +
                                                          ", there " +
                                                          (capacity_.gpus == 1 ? "is " : "are ") +
                                                          std::to_string(capacity_.gpus)});
    }
    if (!resources.gpu_type.empty()) {
        errors.push_back({"/resources/gpu_type",
                          "this machine's GPUs are allocated regardless of type: leave it out"});
    }
    if (ranks > limits::kLocalRanks) {
        errors.push_back({"/resources/ranks_per_node",
                          plural(ranks, "rank") + " in all; this machine starts at most " +
                              std::to_string(limits::kLocalRanks) + " for one job"});
    }
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    std::vector<std::string> warnings;
    if (ranks * resources.cpus_per_rank > capacity_.cores) {
        warnings.push_back(plural(ranks, "rank") + " × " + plural(resources.cpus_per_rank, "CPU") +
                           " on " + plural(capacity_.cores, "core") + ": ranks will share cores");
    }
    if (gpus == 0 && capacity_.gpus > 0) {
        warnings.push_back("gpus_per_node is 0: the ranks see none of this machine's " +
                           plural(capacity_.gpus, "GPU"));
    }
    return warnings;
}

LocalNeed Ledger::need(const Resources& resources) const {
    const std::int64_t cores = std::int64_t{resources.world_size()} * resources.cpus_per_rank;
    return {static_cast<std::int32_t>(std::min<std::int64_t>(cores, capacity_.cores)),
            resources.allocated_nodes() * resources.memory_mb_per_node,
            resources.allocated_nodes() * resources.gpus_per_node};
}

void Ledger::enqueue(const std::string& name, const LocalNeed& need) {
    queue_.push_back({name, need});
}

void Ledger::occupy(const std::string& name, const LocalNeed& need, std::vector<std::string> gpus) {
    if (gpus.empty()) {
        gpus = free_gpus();
        gpus.resize(std::min(gpus.size(), static_cast<std::size_t>(need.gpus)));
    }
    held_[name] = Held{need, std::move(gpus)};
}

Machine Ledger::used() const {
    Machine out;
    out.cores = 0;
    for (const auto& [name, held] : held_) {
        out.cores += held.need.cores;
        out.memory_mb += held.need.memory_mb;
        out.gpus += held.need.gpus;
    }
    return out;
}

std::vector<std::string> Ledger::free_gpus() const {
    std::set<std::string_view> taken;
    for (const auto& [name, held] : held_) {
        taken.insert(held.gpus.begin(), held.gpus.end());
    }
    std::vector<std::string> out;
    for (const std::string& gpu : capacity_.gpu_names) {
        if (!taken.contains(gpu)) {
            out.push_back(gpu);
        }
    }
    return out;
}

std::vector<std::string> Ledger::gpus_of(const std::string& name) const {
    const auto found = held_.find(name);
    return found == held_.end() ? std::vector<std::string>{} : found->second.gpus;
}

// Of what was adopted beyond the capacity nothing is left, neither by number nor by name.
Machine Ledger::free() const {
    const Machine taken = used();
    Machine left = capacity_;
    left.cores = std::max(left.cores - taken.cores, 0);
    left.memory_mb = std::max<std::int64_t>(left.memory_mb - taken.memory_mb, 0);
    left.gpus = std::min(std::max(left.gpus - taken.gpus, 0),
                         static_cast<std::int32_t>(free_gpus().size()));
    return left;
}

bool Ledger::fits(const LocalNeed& need) const {
    const Machine left = free();
    return need.cores <= left.cores && need.memory_mb <= left.memory_mb && need.gpus <= left.gpus;
}

std::string Ledger::take_next() {
    if (queue_.empty() || !fits(queue_.front().need)) {
        return "";
    }
    const Waiting next = queue_.front();
    queue_.pop_front();
    occupy(next.name, next.need);
    return next.name;
}

void Ledger::release(const std::string& name) {
    held_.erase(name);
    std::erase_if(queue_, [&](const Waiting& waiting) { return waiting.name == name; });
}

bool Ledger::queued(const std::string& name) const {
    return std::any_of(queue_.begin(), queue_.end(),
                       [&](const Waiting& waiting) { return waiting.name == name; });
}

std::string Ledger::reason(const std::string& name) const {
    const auto found = std::find_if(queue_.begin(), queue_.end(),
                                    [&](const Waiting& waiting) { return waiting.name == name; });
    if (found == queue_.end()) {
        return "";
    }
    const auto ahead = found - queue_.begin();
    const LocalNeed& need = found->need;
    const Machine left = free();
    std::string text;
    const auto add = [&](const std::string& what, std::int64_t wants, std::int64_t has,
                         const std::string& unit) {
        if (wants > has) {
            text += (text.empty() ? "waiting for " : "; for ") + what + ": needs " +
                    std::to_string(wants) + unit + ", " + std::to_string(has) + unit + " free";
        }
    };
    add("memory", need.memory_mb, left.memory_mb, " MiB");
    add("GPUs", need.gpus, left.gpus, "");
    add("cores", need.cores, left.cores, "");
    if (text.empty()) {
        text = "waiting for its turn";
    }
    if (ahead > 0) {
        text += "; " + plural(ahead, "job") + " ahead";
    }
    return text;
}

}  // namespace lockstep
