// lockstep-train: trains as one rank of a job (started by the agent), as one of several ranks that
// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT make, or alone with --config.
// With --pair-test it is a node's part in the pre-flight's test of two nodes, see pair_test.hpp.
// Exit codes: exits.hpp.
#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/log.hpp"
#include "job/base/version.hpp"
#include "job/cli/manual.hpp"
#include "job/model/spec/train_choices.hpp"
#include "job/rank/client.hpp"
#include "job/rank/rank_context.hpp"
#include "job/trainer/device.hpp"
#include "job/trainer/exits.hpp"
#include "job/trainer/meeting.hpp"
#include "job/trainer/pair_measurement.hpp"
#include "job/trainer/products.hpp"
#include "job/trainer/run.hpp"
#include "job/trainer/stop_signal.hpp"
#include "job/trainer/strategy.hpp"

#include <CLI/CLI.hpp>
#include <malloc.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Arguments {
    std::string config;
    std::string checkpoints;
    bool pair_test = false;
    bool choices = false;
    bool print_manual = false;
};

void declare(CLI::App& app, Arguments& arguments) {
    app.name("lockstep-train");
    app.add_option("--config", arguments.config,
                   "JSON file that holds `train` (default: LOCKSTEP_TRAIN_CONFIG)")
        ->type_name("FILE");
    app.add_option("--checkpoints", arguments.checkpoints,
                   "Folder for checkpoints (default: LOCKSTEP_CHECKPOINT_DIR)")
        ->type_name("DIR");
    app.add_flag("--choices", arguments.choices,
                 "Print what the fields of `train` can be, as Markdown tables");
    app.add_flag("--pair-test", arguments.pair_test,
                 "Test this node with another one: the agent's, for the pre-flight");
    app.add_flag("--print-manual", arguments.print_manual, "Print lockstep-train(1)")->group("");
    app.set_version_flag("--version", std::string{kVersion});
}

std::string manual(const CLI::App& app) {
    cli::ManualText text;
    text.section = 1;
    text.title = "native trainer of Lockstep";
    text.description = {
        "lockstep-train trains a model as the field `train` of a specification says: as one rank "
        "of a Lockstep job (the agent starts it where the job has no command), as one of several "
        "that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT make, or alone.",
        "Ranks that were given different configurations or data are refused by number. After a "
        "restart training goes on from the newest checkpoint, with the sampler where it was.",
        "What the fields of `train` can be is in lockstep-job(5); --choices prints the same."};
    text.environment = {
        {"LOCKSTEP_TRAIN_CONFIG", "Like --config; the agent sets it."},
        {"LOCKSTEP_CHECKPOINT_DIR", "Like --checkpoints; the agent sets it."},
        {"RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
         "Which of how many ranks this is and where they meet."},
        {"CUDA_VISIBLE_DEVICES, LOCAL_RANK",
         "Which GPUs there are, and which of them this rank takes; the agent sets them."},
        {"LOCKSTEP_TRAIN_GRAPHS", "0: no CUDA graphs."},
        {"XDG_CACHE_HOME",
         "Generated data sets are kept in its folder lockstep (default: ~/.cache) when there is no "
         "folder for checkpoints; else beside that."}};
    text.exits = {{"0", "Everything was trained."},
                  {"1", "The training failed, e.g. a peer was lost."},
                  {"2", "The configuration or the data is wrong."},
                  {"143", "Stopped by SIGTERM, after a checkpoint was written."}};
    text.examples = {{"lockstep-train --config train.json --checkpoints checkpoints",
                      "Train alone, and go on from there the next time."}};
    text.see_also = {"lockstep(1)", "lockstep-job(5)", "lockstep-agent(1)"};
    return cli::man_page(app, text, kVersion, "2026-11-25");
}

Result<TrainConfig> read_config(const std::string& path) {
    TrainConfig config;
    if (path.empty()) {
        return config;
    }
    const Result<std::string> text = read_file(path, limits::kBodyBytes);
    LOCKSTEP_TRY(text);
    const Result<Json> json = parse_json(*text);
    if (!json) {
        return fail(json.error().in(path));
    }
    std::vector<FieldError> errors;
    read_train_config(*json, "", config, errors);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)).in(path));
    }
    return config;
}

// Where generated data sets are kept: beside the checkpoints, which all ranks and attempts share;
// alone, in the user's cache.
std::filesystem::path cache_folder(const std::filesystem::path& checkpoints) {
    if (!checkpoints.empty()) {
        return std::filesystem::absolute(checkpoints).parent_path() / "lockstep-datasets";
    }
    if (const auto cache = process_environment("XDG_CACHE_HOME"); cache && !cache->empty()) {
        return std::filesystem::path{*cache} / "lockstep";
    }
    if (const auto home = process_environment("HOME"); home && !home->empty()) {
        return std::filesystem::path{*home} / ".cache" / "lockstep";
    }
    return std::filesystem::current_path() / "lockstep-datasets";
}

void print_summary(const RunEnd& end, const RankContext& context) {
    const double overhead = end.step_seconds > 0 ? end.report_seconds / end.step_seconds : 0.0;
    std::array<char, 80> quality{};  // stays empty if the run was stopped before it was known
    if (end.evaluated && end.of_numbers) {
        std::snprintf(quality.data(), quality.size(), "MAE %.4g, R² %.4f, ", end.mean_error,
                      end.explained);
    } else if (end.evaluated) {
        std::snprintf(quality.data(), quality.size(), "accuracy %.4f, ", end.accuracy);
    }
    std::string more = quality.data();
    if (end.tokens_per_second > 0.0) {
        std::array<char, 80> text{};
        std::snprintf(text.data(), text.size(), "%.0f tokens/s, MFU %.3f, ", end.tokens_per_second,
                      end.mfu);
        more += text.data();
    }
    if (end.skipped_steps > 0) {
        more += std::to_string(end.skipped_steps) + " steps skipped, ";
    }
    if (end.checkpoints > 0) {
        std::array<char, 80> text{};
        std::snprintf(text.data(), text.size(), "a checkpoint stalled it for %.2f ms, ",
                      1e3 * end.stall_seconds / static_cast<double>(end.checkpoints));
        more += text.data();
    }
    std::printf(
        "%s at step %lld: %.1f samples/s on %d rank%s, %sreporting took %.3f %% of the time\n",
        end.stopped ? "stopped" : "finished", static_cast<long long>(end.step),
        end.samples_per_second, context.world_size, context.world_size == 1 ? "" : "s",
        more.c_str(), 100.0 * overhead);
    std::fflush(stdout);
}

// A step makes the tensors of the step before again. glibc would give those of some megabytes back
// to the kernel each time, which clears every page of them anew: 1,600 pages a step of gpt.
void keep_memory() {
    constexpr int kKept = 1 << 30;        // bytes at the end of the heap
    constexpr int kMappedFrom = 1 << 25;  // bytes; the most that glibc takes
    ::mallopt(M_TRIM_THRESHOLD, kKept);
    ::mallopt(M_MMAP_THRESHOLD, kMappedFrom);
}

void say_products() {
    if (products_are_onednn()) {
        log::info("products of matrices", {{"by", products_by()}});
    } else {
        log::warn(
            "products of matrices by LibTorch's BLAS, which is 10 times slower where it is "
            "Debian's reference one: libopenblas0 is faster, a build with libdnnl-dev too");
    }
}

int prepare_and_run(TrainingRun& run, const RankContext& context, RankClient* client) {
    if (const Status ready = run.prepare(); !ready) {
        if (run.refused_by_peer()) {
            return wrong_elsewhere(ready.error(), client);
        }
        const Errc code = ready.error().code;
        const bool peer =
            code == Errc::unavailable || code == Errc::timed_out || code == Errc::cancelled;
        return peer ? failed_by_peer(ready.error(), client) : wrong(ready.error(), client);
    }
    const Result<RunEnd> end = run.run();
    if (!end) {
        return end.error().code == Errc::invalid ? wrong(end.error(), client) : failed(end.error());
    }
    if (!end->served) {
        print_summary(*end, context);
    }
    const int code = end->stopped ? kExitStopped : 0;
    if (end->abandoned) {
        // A thread still waits for a rank that does not answer; nothing of ours is left to do.
        std::_Exit(code);
    }
    return code;
}

void say_device(const ChosenDevice& chosen, const RankContext& context) {
    if (!chosen.gpus.empty()) {
        log::info(chosen.gpus.size() == 1 ? "computing on a GPU" : "computing on several GPUs",
                  {{"gpu", chosen.gpus[0]}, {"gpus", chosen.gpus.size()}, {"name", chosen.name}});
    } else if (!chosen.why_cpu.empty()) {
        log::warn("this rank was given GPUs and computes on the CPU", {{"reason", chosen.why_cpu}});
    } else if (context.rank == 0) {
        say_products();
    }
}

int train(const TrainConfig& given, const RankContext& context, RankClient* client,
          const std::filesystem::path& checkpoints) {
    keep_memory();
    const Result<ChosenDevice> chosen = choose_device(given, context);
    if (!chosen) {
        return wrong(chosen.error(), client);
    }
    const bool gpu = !chosen->gpus.empty();
    say_device(*chosen, context);
    TrainConfig config = given;
    if (gpu) {
        use_device({at::kCUDA, static_cast<at::DeviceIndex>(chosen->gpus.front())});
        config.replicas = static_cast<std::int32_t>(chosen->gpus.size());
    }
    if (std::string wrong_ranks = check_train_ranks(config, context.world_size);
        !wrong_ranks.empty()) {
        return wrong({Errc::invalid, "strategy " + std::move(wrong_ranks)}, client);
    }
    const Result<Dataset> data = load_dataset(config, cache_folder(checkpoints));
    if (!data) {
        return wrong(data.error(), client);
    }
    const Result<std::unique_ptr<Meeting>> meeting = Meeting::begin(context, client);
    if (!meeting) {
        return failed(meeting.error());
    }
    const auto connect = [&](const std::string& name, std::int32_t rank,
                             const std::vector<std::int32_t>& members) {
        return (*meeting)->connect(name, rank, members);
    };
    std::vector<std::int32_t> everybody(static_cast<std::size_t>(context.world_size));
    std::iota(everybody.begin(), everybody.end(), 0);
    const Result<std::unique_ptr<Communicator>> ranks = connect("gloo", context.rank, everybody);
    if (!ranks) {
        return failed_by_peer(ranks.error(), client);
    }
    World world{**ranks, connect, context.node_rank, context.role == "ps"};
    if (gpu) {
        const std::int32_t index = chosen->gpus.front();
        const auto give_up = [&ranks] {
            return stop_is_overdue() || (*ranks)->lost_peer().has_value();
        };
        world.use_gpus(chosen->gpus,
                       [&meeting, index, give_up](const std::string& name, std::int32_t rank,
                                                  const std::vector<std::int32_t>& members) {
                           return (*meeting)->connect_gpu(name, rank, members, index, give_up);
                       });
    }
    RunOptions options;
    options.client = client;
    options.socket = context.socket;
    options.out = stdout;
    options.checkpoint_directory = checkpoints;
    TrainingRun run{config, *data, world, std::move(options)};
    if (!gpu) {
        return prepare_and_run(run, context, client);
    }
    int code = kExitFailed;
    try {
        code = prepare_and_run(run, context, client);
    } catch (const std::exception& error) {  // LibTorch's
        wrong(gpu_failure(error.what(), {chosen->name, run.batch_size(), config.find_batch_size}),
              client);
    }
    if (code != 0) {
        run.finish_writing();  // CUDA's and NCCL's end wait for what others may hold up for ever
        std::fflush(stdout);
        std::_Exit(code);
    }
    return code;
}

// The task comes by standard input: its token is nobody else's to read.
int test_pair() {
    std::string text(limits::kTextBytes * 32, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), stdin));
    const Result<Json> json = parse_json(text);
    const Result<PairTask> task = json ? parse_pair_task(*json) : fail(json.error());
    if (!task) {
        return wrong(task.error());
    }
    try {
        const Result<std::int64_t> took = measure_pair(*task, limits::kPairTest);
        if (!took) {
            std::fprintf(stderr, "%s\n", took.error().message.c_str());
            return kExitFailed;
        }
        std::printf("{\"ms\":%lld}\n", static_cast<long long>(*took));
        return 0;
    } catch (const std::exception& error) {  // LibTorch's
        return failed({Errc::internal, error.what()});
    }
}

int run_program(const Arguments& arguments) {
    if (arguments.pair_test) {
        return test_pair();
    }
    if (arguments.choices) {
        std::fputs(train_choices_markdown().c_str(), stdout);
        return 0;
    }
    const Result<RankContext> context = read_rank_context();
    if (!context) {
        return wrong(context.error());
    }
    const std::string path = arguments.config.empty() ? context->train_config : arguments.config;
    const Result<TrainConfig> config = read_config(path);
    if (!config) {
        return wrong(config.error());
    }
    std::unique_ptr<RankClient> client;
    if (context->managed()) {
        Result<std::unique_ptr<RankClient>> connected = RankClient::connect(context->socket);
        if (!connected) {
            return failed(connected.error());
        }
        client = std::move(*connected);
    }
    const std::string checkpoints =
        arguments.checkpoints.empty() ? context->checkpoint_directory : arguments.checkpoints;
    try {
        return train(*config, *context, client.get(), checkpoints);
    } catch (const std::exception& error) {  // LibTorch's
        return failed({Errc::internal, error.what()});
    }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    lockstep::Arguments arguments;
    CLI::App app{
        "Trains a model: as one rank of a Lockstep job, as one of several with RANK, WORLD_SIZE, "
        "MASTER_ADDR and MASTER_PORT, or alone."};
    lockstep::declare(app, arguments);
    lockstep::cli::dress_help(app, lockstep::cli::terminal_columns());
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : lockstep::kExitWrong;
    }
    if (arguments.print_manual) {
        std::fputs(lockstep::manual(app).c_str(), stdout);
        return 0;
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 1U << 12U);  // a line at a time, also into a file
    lockstep::log::start("lockstep-train", lockstep::log::Level::info, false);
    lockstep::stop_signal::install();
    return lockstep::run_program(arguments);
}
