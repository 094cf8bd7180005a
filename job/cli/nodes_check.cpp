// `lockstep nodes check`: a job that is nothing but its pre-flight, waited for and shown by node.
#include "job/base/ids.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/placement.hpp"
#include "job/cli/spec_file.hpp"
#include "job/cli/views.hpp"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kPause{200};
constexpr const char* kTimeLimit = "15m";

Json check_spec(const Options& options) {
    Json spec = Json::object();
    spec["name"] = "nodes-check";
    spec["framework"] = "command";
    spec["command"] = Json::array({"true"});  // never run
    spec["preflight"] = {{"mode", "only"}};
    if (options.cpu_test) {
        spec["preflight"]["cpu_test"] = true;
    }
    if (options.gpu_test) {
        spec["preflight"]["gpu_test"] = true;
    }
    if (options.pair_test) {
        spec["preflight"]["pair_test"] = true;
    }
    if (options.nccl_test) {
        spec["preflight"]["nccl_test"] = true;
    }
    spec["resources"] = {{"nodes", options.nodes}};
    if (options.gpus > 0) {
        spec["resources"]["gpus_per_node"] = options.gpus;
    }
    // The scheduler finds room earlier for what is known to be short: a partition's default may be
    // a day.
    spec["resources"]["time_limit"] =
        options.time_limit.empty() ? kTimeLimit : options.time_limit.c_str();
    Json slurm = slurm_of(options.partition, options.placement);
    if (!slurm.is_null()) {
        spec["slurm"] = std::move(slurm);
    }
    return spec;
}

// The same answer for people and programs: what was found, worst first.
Json result_of(const Json& job) {
    Json out = Json::object();
    out["job"] = at(job, "id");
    out["state"] = at(job, "state");
    out["nodes"] = Json::array();
    out["findings"] = Json::array();
    for (const Json& attempt : items_at(job, "attempts")) {
        out["nodes"] = items_at(attempt, "nodes");
        out["findings"] = items_at(attempt, "preflight");
    }
    if (at(job, "cause").is_object()) {
        out["cause"] = at(job, "cause");
    }
    return out;
}

Exit show_result(Context& context, const Json& job) {
    const Json result = result_of(job);
    const std::string state = text_at(job, "state");
    const Exit end = state == "succeeded"   ? Exit::ok
                     : state == "cancelled" ? Exit::cancelled
                                            : Exit::job_failed;
    if (context.options.json) {
        print_json(context, result);
        return end;
    }
    const Lines table = preflight_table(context.terminal, result["findings"]);
    print(context, table);
    const std::size_t count = result["nodes"].size();
    if (end == Exit::ok) {
        context.out << count << (count == 1 ? " node" : " nodes") << " checked, none fails\n";
    } else {
        // What no table shows: the scheduler's word, a node that never called in.
        context.err << state << ": " << text_at(at(job, "cause"), "message") << "\n";
    }
    return end;
}

}  // namespace

Exit check_nodes(Context& context) {
    if (context.options.gpu_test && context.options.gpus == 0) {
        context.err << "--gpu-test needs --gpus N, the GPUs that each node must have; the test of "
                       "the CPUs is --cpu-test\n";
        return Exit::usage;
    }
    if (context.options.nccl_test && context.options.gpus == 0) {
        context.err << "--nccl-test needs --gpus N, the GPUs that each node must have\n";
        return Exit::usage;
    }
    const std::string key = random_secret().substr(0, 32);
    Headers headers{{"Idempotency-Key", key}};
    Document document;
    document.json = check_spec(context.options);
    document.made_by = MadeBy::check;
    const auto job =
        context.client.post_json("/v1/jobs", dump_json(document.json), std::move(headers));
    if (!job) {
        return report_mistakes(context, document, job.error());
    }
    const std::string id = text_at(*job, "id");
    context.watching(id);
    for (const Json& warning : items_at(*job, "warnings")) {
        if (warning.is_string()) {
            context.err << "warning: " << one_line(warning.get_ref<const std::string&>()) << "\n";
        }
    }
    context.err << "checking, as job " << id << "\n";
    for (;;) {
        const auto now = context.client.get_json("/v1/jobs/" + id);
        if (!now && !may_pass(now.error())) {
            return report(context, now.error());
        }
        if (now && is_final_state(text_at(*now, "state"))) {
            context.watching("");
            return show_result(context, *now);
        }
        context.sleep(kPause);
    }
}

}  // namespace lockstep::cli
