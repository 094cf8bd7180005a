#include "job/model/spec/spec.hpp"

#include "job/base/clock.hpp"
#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/model/spec/capture.hpp"
#include "job/model/spec/framework.hpp"
#include "job/model/spec/notify.hpp"
#include "job/model/spec/spec_environment.hpp"
#include "job/model/spec/spec_fields.hpp"
#include "job/model/spec/spec_secrets.hpp"
#include "job/model/spec/spec_slurm.hpp"
#include "job/model/spec/train_devices.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kBindings{"none", "numa", "cores"};
static_assert(names_all_of<Binding>(kBindings));

constexpr std::array<std::string_view, 2> kSubmissions{"automatic", "manual"};
static_assert(names_all_of<Submission>(kSubmissions));

bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$
bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 64 && is_word(text.front()) &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return is_word(c) || c == '.' || c == '_' || c == '-'; });
}

std::string_view wrong_label(std::string_view name) {
    return is_name(name) ? "" : "is not a label name: ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
}

// Stands in an #SBATCH line: --gpus-per-node=h100:4.
void read_gpu_type(ObjectReader& in, Resources& out) {
    std::string type;
    in.string("gpu_type", type, limits::kTextBytes);
    const auto plain = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               c == '_';
    };
    const bool name = type.size() <= 64 && !type.empty() && plain(type.front()) &&
                      std::all_of(type.begin(), type.end(),
                                  [&](char c) { return plain(c) || c == '.' || c == '-'; });
    if (type.empty()) {
        return;
    }
    if (!name) {
        in.error("gpu_type", "must be a name of letters, digits, _ . and -, such as h100");
    } else if (out.gpus_per_node == 0) {
        in.error("gpu_type",
                 "says which GPUs: /resources/gpus_per_node says how many, and asks for none");
    } else {
        out.gpu_type = std::move(type);
    }
}

void read_resources(const Json& json, const std::string& pointer, Resources& out,
                    std::vector<FieldError>& errors) {
    ObjectReader in{json, pointer, errors};
    in.integer("nodes", out.nodes, 1, limits::kNodes);
    in.integer("spares", out.spares, 0, limits::kSpares);
    read_min_nodes(in, out);
    in.integer("ranks_per_node", out.ranks_per_node, 1, limits::kRanksPerNode);
    in.integer("gpus_per_node", out.gpus_per_node, 0, limits::kGpusPerNode);
    read_gpu_type(in, out);
    in.integer("ranks_per_gpu", out.ranks_per_gpu, 1, limits::kRanksPerGpu);
    in.integer("cpus_per_rank", out.cpus_per_rank, 1, limits::kCpusPerRank);
    in.integer("memory_mb_per_node", out.memory_mb_per_node, 1, limits::kMemoryMbPerNode);
    auto binding = static_cast<std::size_t>(out.binding);
    in.word("binding", binding, {kBindings.begin(), kBindings.end()});
    out.binding = static_cast<Binding>(binding);
    std::string limit;
    in.string("time_limit", limit, limits::kTextBytes);
    if (!limit.empty()) {
        const auto seconds = parse_time_limit(limit);
        if (!seconds) {
            in.error("time_limit", seconds.error().message);
        } else if (*seconds > limits::kTimeLimitSeconds) {
            in.error("time_limit",
                     "must be at most " + format_time_limit(limits::kTimeLimitSeconds));
        } else {
            out.time_limit_seconds = *seconds;
        }
    }
    in.finish();
    if (out.allocated_nodes() > limits::kNodes) {
        in.error("spares", "with them more than " + std::to_string(limits::kNodes) + " nodes");
    }
    const std::int64_t ranks = std::int64_t{out.nodes} * out.ranks_per_node;
    if (ranks > limits::kRanks) {
        errors.push_back(
            {pointer, std::to_string(ranks) + " ranks: at most " + std::to_string(limits::kRanks)});
        out = Resources{};
    }
}

void read_capture(const Json& json, const std::string& pointer, CaptureSpec& out,
                  std::vector<FieldError>& errors) {
    ObjectReader in{json, pointer, errors};
    std::size_t preset = 0;
    if (in.has("preset")) {
        in.word("preset", preset, capture_presets());
        out.preset = std::string{capture_presets()[preset]};
    }
    in.string("loss", out.loss, limits::kPatternBytes);
    if (!out.loss.empty()) {
        if (const auto good = check_capture_pattern(out.loss); !good) {
            in.error("loss", good.error().message);
        }
    }
    in.finish();
}

void read_command(ObjectReader& in, JobSpec& spec, const std::vector<FieldError>& errors) {
    const bool native = spec.framework == Framework::native;
    if (native) {
        if (in.raw("command") != nullptr) {
            in.error("command", "has no effect with framework native: Lockstep's own trainer runs");
        }
        return;
    }
    const std::size_t before = errors.size();
    in.strings("command", spec.command, limits::kArguments, limits::kArgumentBytes);
    if (errors.size() > before) {
        return;  // one mistake, not two: it is there, though it cannot be read
    }
    if (spec.command.empty()) {
        in.error("command", "is required: the program each rank runs, as an array of strings");
    } else if (spec.command.front().empty()) {
        in.error("command", "must start with the name of a program");
    }
}

void read_train(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    if (spec.framework != Framework::native) {
        if (in.has("train")) {
            in.error("train", "has no effect with this framework: only native reads it");
        }
        return;
    }
    spec.train = TrainConfig{};
    if (const Json* train = in.raw("train")) {
        read_train_config(*train, in.pointer("train"), *spec.train, errors);
    }
    if (std::string wrong = check_train_ranks(*spec.train, spec.resources.world_size());
        !wrong.empty()) {
        errors.push_back({in.pointer("train") + "/strategy", std::move(wrong)});
    }
    check_train_gpus(spec, in.pointer("train"), errors);
}

void read_placement(ObjectReader& in, JobSpec& spec, std::vector<FieldError>& errors) {
    if (const Json* slurm = in.raw("slurm")) {
        read_slurm(*slurm, in.pointer("slurm"), spec.slurm, errors);
        check_against_resources(spec.slurm, in.pointer("slurm"), spec.resources, errors);
    }
    std::size_t submission = 0;
    in.word("submission", submission, {kSubmissions.begin(), kSubmissions.end()});
    spec.submission = static_cast<Submission>(submission);
    const std::int64_t limit = spec.resources.time_limit_seconds;
    if (limit > 0 && spec.checkpoint.seconds_before_timeout >= limit) {
        errors.push_back({"/checkpoint/seconds_before_timeout",
                          "must be less than /resources/time_limit, " + format_time_limit(limit)});
    }
}

}  // namespace

Result<JobSpec> parse_spec(const Json& json) {
    std::vector<FieldError> errors;
    JobSpec spec;
    ObjectReader in{json, "", errors};
    if (!json.is_object()) {
        return fail(field_errors(std::move(errors)));
    }

    in.string("name", spec.name, 64);
    if (!in.has("name")) {
        in.error("name", "is required");
    } else if (!spec.name.empty() && !is_name(spec.name)) {
        in.error("name", "must match ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
    } else if (spec.name.empty() && errors.empty()) {
        in.error("name", "must not be empty");
    }

    const std::size_t mistakes = errors.size();
    std::size_t framework = 0;
    in.word("framework", framework, framework_names());
    spec.framework = static_cast<Framework>(framework);
    if (!in.has("framework")) {
        in.error("framework", "is required");
    }
    const bool known = errors.size() == mistakes;

    if (const Json* resources = in.raw("resources")) {
        read_resources(*resources, in.pointer("resources"), spec.resources, errors);
    }
    if (known) {
        read_command(in, spec, errors);
        read_train(in, spec, errors);
    } else {  // these cannot be checked
        spec.framework = Framework::command;
        in.strings("command", spec.command, limits::kArguments, limits::kArgumentBytes);
        in.raw("train");
    }
    read_launch(in, spec);
    read_environment(in, spec, errors);
    read_secrets(in, spec, errors);
    read_roles(in, spec, errors);  // the environment says what keras runs on
    read_map(in, "labels", spec.labels, {limits::kLabels, limits::kTextBytes, wrong_label}, errors);
    in.string("working_directory", spec.working_directory, limits::kPathBytes);
    if (!spec.working_directory.empty() && spec.working_directory.front() != '/') {
        in.error("working_directory", "must be an absolute path");
    }
    if (const Json* capture = in.raw("capture")) {
        read_capture(*capture, in.pointer("capture"), spec.capture, errors);
    }
    if (const Json* checkpoint = in.raw("checkpoint")) {
        read_checkpoint(*checkpoint, in.pointer("checkpoint"), spec.checkpoint, errors);
    }
    if (spec.launch == Launch::task && spec.resources.spares > 0) {
        errors.push_back({"/resources/spares",
                          "with launch task srun starts the ranks, and on "
                          "every node it has: use launch rank, or no spares"});
    }
    if (spec.launch != Launch::rank && spec.resources.binding != Binding::none) {
        errors.push_back({"/resources/binding", "has no effect with launch " +
                                                    std::string{to_string(spec.launch)} +
                                                    ": the agent does not start the ranks"});
    }
    read_placement(in, spec, errors);
    read_container(in, spec, errors);
    read_recovery(in, spec, errors);
    check_elastic(spec, errors);
    read_watch(in, spec.watch, errors);
    read_preflight(in, spec.preflight, errors);
    read_after(in, spec.after, errors);
    read_notify(in, spec.notify, errors);
    refuse_later_fields(in);
    in.finish();
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return spec;
}

std::string_view to_string(Binding binding) {
    return kBindings[static_cast<std::size_t>(binding)];
}

Json to_json(const Resources& resources) {
    Json out = Json::object();
    out["nodes"] = resources.nodes;
    if (resources.spares > 0) {
        out["spares"] = resources.spares;
    }
    if (resources.is_elastic()) {
        out["min_nodes"] = resources.min_nodes;
    }
    out["ranks_per_node"] = resources.ranks_per_node;
    out["gpus_per_node"] = resources.gpus_per_node;
    if (!resources.gpu_type.empty()) {
        out["gpu_type"] = resources.gpu_type;
    }
    if (resources.ranks_per_gpu > 1) {
        out["ranks_per_gpu"] = resources.ranks_per_gpu;
    }
    out["cpus_per_rank"] = resources.cpus_per_rank;
    if (resources.memory_mb_per_node > 0) {
        out["memory_mb_per_node"] = resources.memory_mb_per_node;
    }
    if (resources.time_limit_seconds > 0) {
        out["time_limit"] = format_time_limit(resources.time_limit_seconds);
    }
    if (resources.binding != Binding::none) {
        out["binding"] = to_string(resources.binding);
    }
    return out;
}

Json to_json(const JobSpec& spec) {
    Json out = Json::object();
    out["name"] = spec.name;
    out["framework"] = to_string(spec.framework);
    if (spec.train) {
        out["train"] = to_json(*spec.train);
    } else {
        out["command"] = spec.command;
    }
    if (spec.launch != Launch::rank) {
        out["launch"] = to_string(spec.launch);
    }
    if (!spec.roles.empty()) {
        out["roles"] = to_json(spec.roles);
    }
    out["resources"] = to_json(spec.resources);
    if (!spec.slurm.empty()) {
        out["slurm"] = to_json(spec.slurm);
    }
    if (spec.submission != Submission::automatic) {
        out["submission"] = kSubmissions[static_cast<std::size_t>(spec.submission)];
    }
    put_environment(out, spec);
    if (!spec.secrets.empty()) {
        out["secrets"] = spec.secrets;
    }
    if (!spec.working_directory.empty()) {
        out["working_directory"] = spec.working_directory;
    }
    if (Json container = to_json(spec.container); !container.empty()) {
        out["container"] = std::move(container);
    }
    if (Json checkpoint = to_json(spec.checkpoint); !checkpoint.empty()) {
        out["checkpoint"] = std::move(checkpoint);
    }
    if (Json recovery = to_json(spec.recovery); !recovery.empty()) {
        out["recovery"] = std::move(recovery);
    }
    if (Json watch = to_json(spec.watch); !watch.empty()) {
        out["watch"] = std::move(watch);
    }
    if (Json preflight = to_json(spec.preflight); !preflight.empty()) {
        out["preflight"] = std::move(preflight);
    }
    out["capture"] = Json::object();
    out["capture"]["preset"] = spec.capture.preset;
    if (!spec.capture.loss.empty()) {
        out["capture"]["loss"] = spec.capture.loss;
    }
    if (!spec.after.empty()) {
        out["after"] = spec.after;
    }
    if (!spec.notify.empty()) {
        out["notify"] = spec.notify;
    }
    out["labels"] = Json::object();
    for (const auto& [name, value] : spec.labels) {
        out["labels"][name] = value;
    }
    return out;
}

std::string expand_placeholders(std::string_view text, const Placeholders& values) {
    const std::array<std::pair<std::string_view, std::string>, 7> table{{
        {"{rank}", std::to_string(values.rank)},
        {"{local_rank}", std::to_string(values.local_rank)},
        {"{node_rank}", std::to_string(values.node_rank)},
        {"{num_nodes}", std::to_string(values.num_nodes)},
        {"{world_size}", std::to_string(values.world_size)},
        {"{master_addr}", values.master_addr},
        {"{master_port}", std::to_string(values.master_port)},
    }};
    std::string out;
    while (!text.empty()) {
        const auto brace = text.find('{');
        out.append(text.substr(0, brace));
        if (brace == std::string_view::npos) {
            break;
        }
        text.remove_prefix(brace);
        const auto found = std::find_if(table.begin(), table.end(), [&](const auto& entry) {
            return text.starts_with(entry.first);
        });
        if (found == table.end()) {
            out += '{';
            text.remove_prefix(1);
        } else {
            out += found->second;
            text.remove_prefix(found->first.size());
        }
    }
    return out;
}

}  // namespace lockstep
