// launch and roles of a job: what each framework has (framework.hpp).
#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/gpu_view.hpp"
#include "job/model/spec/spec_fields.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kLaunches{"rank", "node", "task"};
static_assert(names_all_of<Launch>(kLaunches));

template <class List>
std::string words_of(const List& list) {
    std::string out;
    for (std::size_t i = 0; i < list.size(); ++i) {
        out += i == 0 ? "" : i + 1 == list.size() ? " or " : ", ";
        out += list[i];
    }
    return out;
}

// Empty: any name.
std::span<const std::string_view> role_names(const JobSpec& spec) {
    static constexpr std::array<std::string_view, 1> kWorkers{"worker"};
    const auto roles = traits_of(spec.framework).roles;
    return roles != nullptr ? roles(spec) : kWorkers;
}

// ^[a-z][a-z0-9_-]{0,31}$
bool is_role_name(std::string_view text) {
    const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
    return !text.empty() && text.size() <= 32 && letter(text.front()) &&
           std::all_of(text.begin(), text.end(), [&](char c) {
               return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
           });
}

const RoleSpec* find(const std::vector<RoleSpec>& roles, std::string_view name) {
    const auto found = std::find_if(roles.begin(), roles.end(),
                                    [&](const RoleSpec& role) { return role.name == name; });
    return found == roles.end() ? nullptr : &*found;
}

// Servers never end by themselves, nor an evaluator.
bool ends_job_by_default(const JobSpec& spec, const RoleSpec& role) {
    const auto ends = traits_of(spec.framework).ends_job;
    return ends != nullptr ? ends(spec, role) : role.name != "ps" && role.name != "evaluator";
}

struct RolesReader {
    JobSpec& spec;
    std::vector<FieldError>& errors;
    std::vector<bool> says_end{};  // by role: ends_job was given

    static std::string at(std::size_t role, const char* field) {
        return "/roles/" + std::to_string(role) + field;
    }
    void error(std::size_t role, const char* field, std::string message) {
        errors.push_back({at(role, field), std::move(message)});
    }

    void read_one(const Json& json) {
        const std::size_t number = spec.roles.size();
        RoleSpec role;
        ObjectReader in{json, at(number, ""), errors};
        in.string("name", role.name, limits::kTextBytes);
        in.integer("count", role.count, 1, limits::kRanks);
        in.integer("gpus", role.gpus, 0, limits::kGpusPerNode);
        in.boolean("ends_job", role.ends_job);
        says_end.push_back(in.has("ends_job"));
        if (!in.has("name")) {
            in.error("name", "is required");
        } else {
            check_name(number, role.name);
        }
        if (!in.has("count")) {
            in.error("count", "is required: how many ranks have this role");
        }
        in.finish();
        spec.roles.push_back(std::move(role));
    }

    void check_name(std::size_t number, const std::string& name) {
        const auto names = role_names(spec);
        if (names.empty() ? !is_role_name(name)
                          : std::find(names.begin(), names.end(), name) == names.end()) {
            error(number, "/name",
                  names.empty() ? "must match ^[a-z][a-z0-9_-]{0,31}$"
                                : "framework " + framework_words(spec) +
                                      " has no such role: only " + words_of(names));
        } else if (find(spec.roles, name) != nullptr) {
            error(number, "/name", "is there already");
        }
    }

    void check_counts() {
        std::int64_t sum = 0;
        for (const RoleSpec& role : spec.roles) {
            sum += role.count;
        }
        const Resources& resources = spec.resources;
        if (sum != resources.world_size()) {
            errors.push_back({"/roles", "the counts make " + std::to_string(sum) +
                                            " ranks; /resources asks for " +
                                            std::to_string(resources.nodes) + " nodes × " +
                                            std::to_string(resources.ranks_per_node) +
                                            " ranks = " + std::to_string(resources.world_size())});
        }
        if (const auto check = traits_of(spec.framework).check_roles) {
            check(spec, errors);
        }
    }

    void check_ends() {
        for (std::size_t i = 0; i < spec.roles.size(); ++i) {
            if (!says_end[i]) {
                spec.roles[i].ends_job = ends_job_by_default(spec, spec.roles[i]);
            }
        }
        if (std::none_of(spec.roles.begin(), spec.roles.end(),
                         [](const RoleSpec& role) { return role.ends_job; })) {
            errors.push_back({"/roles", "no role ends the job: one needs ends_job true"});
        }
    }

    // A mask for each rank is wrong where a rank takes the GPU of its local number.
    void check_gpus() {
        const auto masking = traits_of(spec.framework).masks_gpus;
        const bool masks = masking != nullptr && masking(spec);
        const std::int32_t per_node = spec.resources.ranks_per_node;
        for (std::size_t i = 0; i < spec.roles.size(); ++i) {
            if (spec.roles[i].gpus >= 0 && !masks) {
                error(i, "/gpus",
                      "framework " + framework_words(spec) +
                          (traits_of(spec.framework).gpus_of == nullptr
                               ? " shows every rank all GPUs of its node"
                               : " says itself which GPUs of its node a rank sees") +
                          ": use /resources/gpus_per_node");
                return;
            }
        }
        for (std::int32_t node = 0; node < spec.resources.nodes; ++node) {
            std::int64_t asked = 0;
            for (std::int32_t local = 0; local < per_node; ++local) {
                asked += std::max(0, spec.role_of(node * per_node + local).gpus);
            }
            if (asked > spec.resources.gpus_per_node) {
                errors.push_back({"/roles", "the ranks of node " + std::to_string(node) + " see " +
                                                std::to_string(asked) +
                                                " GPUs; /resources/gpus_per_node is " +
                                                std::to_string(spec.resources.gpus_per_node)});
                return;
            }
        }
    }
};

void check_sizes(JobSpec& spec, std::vector<FieldError>& errors) {
    if (needs_endpoints(spec) && spec.world_size() > limits::kEndpoints) {
        errors.push_back({"/resources", std::to_string(spec.world_size()) +
                                            " ranks: this framework's ranks are given the address "
                                            "of every other, so at most " +
                                            std::to_string(limits::kEndpoints)});
    }
    if (const auto check = traits_of(spec.framework).check) {
        check(spec, errors);
    }
    if (has_too_few_gpus(spec)) {
        errors.push_back({"/resources/gpus_per_node",
                          std::to_string(spec.resources.gpus_per_node) +
                              " GPUs: each of a node's workers needs some of its own"});
    }
    check_shared_gpus(spec, errors);
}

}  // namespace

bool runs_tensorflow(const JobSpec& spec) {
    return spec.framework == Framework::tensorflow ||
           (spec.framework == Framework::keras && keras_backend(spec) == "tensorflow");
}

std::string_view to_string(Launch launch) {
    return kLaunches[static_cast<std::size_t>(launch)];
}

std::string_view keras_backend(const JobSpec& spec) {
    for (const auto* variables : {&spec.environment, &spec.recorded_environment}) {
        if (const auto named = variables->find("KERAS_BACKEND"); named != variables->end()) {
            return named->second;
        }
    }
    return "tensorflow";
}

bool needs_endpoints(const JobSpec& spec) {
    if (spec.launch != Launch::rank) {
        return false;
    }
    const auto needs = traits_of(spec.framework).needs_endpoints;
    return needs != nullptr && needs(spec);
}

std::string framework_words(const JobSpec& spec) {
    std::string out{to_string(spec.framework)};
    if (const auto variant = traits_of(spec.framework).variant) {
        out += " on " + std::string{variant(spec)};
    }
    return out;
}

RankRole JobSpec::role_of(std::int32_t rank) const {
    RankRole out;
    out.index = rank;
    out.count = world_size();
    std::int32_t first = 0;
    for (const RoleSpec& role : roles) {
        if (rank < first + role.count) {
            return {role.name, rank - first, role.count, role.gpus, role.ends_job};
        }
        first += role.count;
    }
    return out;
}

void read_launch(ObjectReader& in, JobSpec& spec) {
    const FrameworkTraits& rule = traits_of(spec.framework);
    std::size_t launch = static_cast<std::size_t>(rule.launches.front());
    const std::size_t before = launch;
    in.word("launch", launch, {kLaunches.begin(), kLaunches.end()});
    spec.launch = static_cast<Launch>(launch);
    if (std::find(rule.launches.begin(), rule.launches.end(), spec.launch) == rule.launches.end()) {
        std::vector<std::string_view> words;
        words.reserve(rule.launches.size());
        for (const Launch one : rule.launches) {
            words.push_back(to_string(one));
        }
        in.error("launch", "framework " + std::string{to_string(spec.framework)} + " has only " +
                               words_of(words) + ": " + std::string{rule.no_other_launch});
        spec.launch = static_cast<Launch>(before);
    }
}

static void read_role_list(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    const Json* list = in.raw("roles");
    if (list == nullptr) {
        return;
    }
    if (!list->is_array() || list->size() > limits::kRoles) {
        in.error("roles", "must be an array of at most " + std::to_string(limits::kRoles));
        return;
    }
    if (list->empty()) {
        return;
    }
    if (spec.launch != Launch::rank) {
        in.error("roles", "have no effect with launch " + std::string{to_string(spec.launch)} +
                              ": only launch rank gives each rank a role");
        return;
    }
    const std::size_t faults = errors.size();
    RolesReader reader{spec, errors};
    for (const Json& role : *list) {
        reader.read_one(role);
    }
    if (errors.size() == faults) {
        reader.check_counts();
    }
    if (errors.size() == faults) {
        reader.check_ends();
        reader.check_gpus();
    }
    if (errors.size() != faults) {
        spec.roles.clear();
    }
}

void read_roles(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    const std::size_t faults = errors.size();
    read_role_list(in, spec, errors);
    if (errors.size() == faults) {
        check_sizes(spec, errors);
    }
}

Json to_json(const std::vector<RoleSpec>& roles) {
    Json out = Json::array();
    for (const RoleSpec& role : roles) {
        Json one = Json::object();
        one["name"] = role.name;
        one["count"] = role.count;
        if (role.gpus >= 0) {
            one["gpus"] = role.gpus;
        }
        one["ends_job"] = role.ends_job;
        out.push_back(std::move(one));
    }
    return out;
}

}  // namespace lockstep
