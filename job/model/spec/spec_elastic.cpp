// Jobs that may run on fewer nodes than they ask for: /resources/min_nodes.
#include "job/base/limits.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

void read_min_nodes(ObjectReader& in, Resources& out) {
    in.integer("min_nodes", out.min_nodes, 1, limits::kNodes);
    if (out.min_nodes > out.nodes) {
        in.error("min_nodes", "must be at most nodes, " + std::to_string(out.nodes));
        out.min_nodes = 0;
    } else if (out.min_nodes == out.nodes) {
        out.min_nodes = 0;  // the same as without it
    }
}

// What can go on with fewer nodes, and only once somebody has said that it may.
void check_elastic(const JobSpec& spec, std::vector<FieldError>& errors) {
    if (!spec.resources.is_elastic()) {
        if (spec.recovery.grow_after_seconds) {
            errors.push_back({"/recovery/grow_after_seconds",
                              "has no effect without /resources/min_nodes below nodes"});
        }
        return;
    }
    for (std::size_t i = 0; spec.launch == Launch::node && i < spec.command.size(); ++i) {
        const std::string_view word = spec.command[i];
        const bool torchrun = word.starts_with("--nnodes");
        const bool accelerate =
            word.starts_with("--num_machines") || word.starts_with("--num-machines");
        const std::string_view value = word.find('=') != std::string_view::npos ? word
                                       : i + 1 < spec.command.size() ? spec.command[i + 1]
                                                                     : word;
        if (torchrun || (accelerate && value.find("{num_nodes}") == std::string_view::npos)) {
            errors.push_back({"/command/" + std::to_string(i),
                              std::string{"would keep the number of nodes when "
                                          "/resources/min_nodes lets it change: "} +
                                  (torchrun ? "leave it out, torchrun finds it in PET_NNODES"
                                            : "its value must be {num_nodes}")});
        }
    }
    const auto refuse = [&](std::string why) {
        errors.push_back({"/resources/min_nodes", std::move(why)});
    };
    if (spec.launch == Launch::task) {
        refuse(
            "with launch task srun starts one MPI world, which cannot be made again with fewer "
            "nodes: use launch rank or node, or leave it out");
    } else if (!spec.roles.empty()) {
        refuse("with roles the ranks of a lost node have duties that no other has: leave it out");
    } else if (spec.train && spec.train->strategy == TrainStrategy::pipeline) {
        refuse(
            "strategy pipeline cuts the model over a fixed number of ranks: use data_parallel, or "
            "leave it out");
    } else if (!spec.recovery.has(RecoveryTrigger::node_failure)) {
        refuse(
            "needs /recovery with node_failure: fewer nodes are what ranks that start again from "
            "their checkpoint go on with");
    }
}

}  // namespace lockstep
