// export: what the ranks reported, for other programs.
#include "job/cli/export.hpp"

#include "job/base/limits.hpp"
#include "job/base/number.hpp"
#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/new_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <numeric>
#include <optional>
#include <set>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kBlock = 64;

volatile std::sig_atomic_t signalled = 0;
extern "C" void on_signal(int /*signal*/) {
    signalled = 1;
}

// While it lives, the first interruption is only noted, so that what is half written can be taken
// away; the second ends the program.
class Interruptions {
  public:
    Interruptions() {
        signalled = 0;
        struct sigaction noted{};
        noted.sa_handler = on_signal;
        noted.sa_flags = static_cast<int>(SA_RESETHAND);
        ::sigaction(SIGINT, &noted, &interrupt_);
        ::sigaction(SIGTERM, &noted, &terminate_);
    }
    Interruptions(const Interruptions&) = delete;
    Interruptions& operator=(const Interruptions&) = delete;
    ~Interruptions() {
        ::sigaction(SIGINT, &interrupt_, nullptr);
        ::sigaction(SIGTERM, &terminate_, nullptr);
    }

  private:
    struct sigaction interrupt_{};
    struct sigaction terminate_{};
};

// The file or standard output that lines go to.
class LineWriter {
  public:
    static Result<LineWriter> open(const std::string& target, bool overwrite, std::ostream& out) {
        if (target == "-") {
            return LineWriter{std::nullopt, {}, &out};
        }
        fs::path path = target;
        std::error_code error;
        const fs::file_status there = fs::status(path, error);
        const fs::file_type kind = there.type();
        if (kind == fs::file_type::directory) {
            return fail(write_error("open " + target, EISDIR));
        }
        if (fs::exists(there) && kind != fs::file_type::regular) {
            return made(NewFile::open_existing(path), {});
        }
        if (kind == fs::file_type::regular) {
            if (!overwrite) {
                return fail(Errc::conflict,
                            "a file is there: " + target + " (--overwrite replaces it)");
            }
            path = fs::canonical(path, error);  // not the link to it
        }
        fs::path beside = path;
        beside += "." + std::to_string(::getpid()) + ".part";
        return made(NewFile::create(beside), path);
    }
    Status write(std::string_view text) {
        if (file_) {
            return file_->write(text);
        }
        *out_ << text;
        return *out_ ? Status{} : Status{fail(write_error("write to standard output", errno))};
    }
    Status finish() {
        if (file_) {
            return path_.empty() ? file_->finish() : file_->finish_as(path_);
        }
        *out_ << std::flush;
        return *out_ ? Status{} : Status{fail(write_error("write to standard output", errno))};
    }

  private:
    LineWriter(std::optional<NewFile> file, fs::path path, std::ostream* out)
        : file_(std::move(file)), path_(std::move(path)), out_(out) {}
    static Result<LineWriter> made(Result<NewFile> file, fs::path path) {
        LOCKSTEP_TRY(file);
        return LineWriter{std::move(*file), std::move(path), nullptr};
    }
    std::optional<NewFile> file_;
    fs::path path_;  // its name in the end; "" = it has it
    std::ostream* out_ = nullptr;
};

Result<ExportCount> export_lines(const Context& context, SampleReader& reader,
                                 const ExportPlan& plan, const std::string& target, bool csv) {
    auto lines = LineWriter::open(target, context.options.overwrite, context.out);
    LOCKSTEP_TRY(lines);
    ExportCount count;
    std::set<std::int32_t> ranks;
    for (const auto& block : plan.blocks) {
        for (const std::string& metric : plan.metrics) {
            const auto use = [&](const Sample& sample) -> Status {
                if (count.samples++ == 0 && csv) {
                    if (const Status begun =
                            lines->write(plan.of_gpus ? kGpuCsvHeader : kCsvHeader);
                        !begun) {
                        return begun;
                    }
                }
                ranks.insert(sample.rank);
                return lines->write(csv ? csv_line(sample, metric) : json_line(sample, metric));
            };
            if (const Status read = reader.each({metric, block, std::nullopt, plan.of_gpus}, use);
                !read) {
                return fail(read.error());
            }
        }
    }
    count.ranks = ranks.size();
    if (count.samples > 0) {
        LOCKSTEP_TRY(lines->finish());
    }
    return count;
}

std::string listed(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& name : names) {
        out += (out.empty() ? "" : ", ") + name;
    }
    return out;
}

// Only what was asked for by name.
Status choose_metrics(const Context& context, ExportPlan& plan) {
    std::vector<std::string> chosen;
    for (const std::string& name : context.options.metrics) {
        if (std::find(plan.metrics.begin(), plan.metrics.end(), name) == plan.metrics.end()) {
            return fail(Errc::not_found, "nothing was reported as " + one_line(name) +
                                             "; there is " + listed(plan.metrics));
        }
        if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) {
            chosen.push_back(name);
        }
    }
    if (!chosen.empty()) {
        plan.metrics = std::move(chosen);
    }
    return {};
}

void add_to_blocks(ExportPlan& plan, std::int32_t number) {
    if (plan.blocks.empty() || plan.blocks.back().front() / kBlock != number / kBlock) {
        plan.blocks.emplace_back();
    }
    plan.blocks.back().push_back(number);
}

bool uses(const Json& gpu, const std::vector<std::int32_t>& ranks) {
    const Json& users = items_at(gpu, "ranks");
    return std::any_of(users.begin(), users.end(), [&](const Json& rank) {
        return rank.is_number_integer() &&
               std::find(ranks.begin(), ranks.end(), rank.get<std::int32_t>()) != ranks.end();
    });
}

Result<ExportPlan> plan_of_gpus(const Context& context, const std::string& id) {
    ExportPlan plan;
    plan.of_gpus = true;
    std::vector<std::int32_t> ranks;
    if (!context.options.ranks.empty()) {
        auto set = parse_rank_set(context.options.ranks, limits::kRanks);
        if (!set) {
            return fail(set.error().in("--rank"));
        }
        ranks = std::move(*set);
    }
    std::int64_t total = 1;
    for (std::int64_t offset = 0; offset < total; offset += limits::kPage) {
        const auto answer = context.client.get_json("/v1/jobs/" + id +
                                                    "/gpus?limit=" + std::to_string(limits::kPage) +
                                                    "&offset=" + std::to_string(offset));
        LOCKSTEP_TRY(answer);
        total = integer_at(*answer, "total").value_or(0);
        plan.metrics.clear();
        for (const Json& name : items_at(*answer, "metrics")) {
            if (name.is_string()) {
                plan.metrics.push_back(one_line(name.get_ref<const std::string&>()));
            }
        }
        for (const Json& gpu : items_at(*answer, "items")) {
            const auto number = integer_at(gpu, "id");
            if (number && (context.options.ranks.empty() || uses(gpu, ranks))) {
                add_to_blocks(plan, static_cast<std::int32_t>(*number));
            }
        }
    }
    if (plan.metrics.empty() || plan.blocks.empty()) {
        return fail(Errc::not_found,
                    plan.metrics.empty() ? "no GPU was seen" : "none of these ranks used a GPU");
    }
    LOCKSTEP_TRY(choose_metrics(context, plan));
    return plan;
}

Result<ExportPlan> plan_of(const Context& context, const std::string& id) {
    if (context.options.of_gpus) {
        return plan_of_gpus(context, id);
    }
    const auto answer = context.client.get_json("/v1/jobs/" + id + "/metrics");
    LOCKSTEP_TRY(answer);
    ExportPlan plan;
    for (const Json& name : items_at(*answer, "items")) {
        if (name.is_string()) {
            plan.metrics.push_back(one_line(name.get_ref<const std::string&>()));
        }
    }
    if (plan.metrics.empty()) {
        return fail(Errc::not_found, "no rank has reported anything");
    }
    const auto world = static_cast<std::int32_t>(integer_at(*answer, "ranks").value_or(0));
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(std::max(world, 0)));
    std::iota(ranks.begin(), ranks.end(), 0);
    if (!context.options.ranks.empty()) {
        auto set = parse_rank_set(context.options.ranks, limits::kRanks);
        if (!set) {
            return fail(set.error().in("--rank"));
        }
        if (set->back() >= world) {
            return fail(Errc::not_found, "no rank " + std::to_string(set->back()) +
                                             ": the job has ranks 0-" + std::to_string(world - 1));
        }
        ranks = std::move(*set);
    }
    for (const std::int32_t rank : ranks) {
        add_to_blocks(plan, rank);
    }
    LOCKSTEP_TRY(choose_metrics(context, plan));
    return plan;
}

Exit ended(Context& context, const Error& error) {
    const Exit exit = report(context, error);
    return error.code == Errc::internal ? Exit::not_written : exit;
}

}  // namespace

std::string csv_line(const Sample& sample, std::string_view metric) {
    std::string line;
    if (sample.gpu == nullptr) {
        line = std::to_string(sample.rank);
    } else {
        // A node's name has no comma and no quote: lockstepd keeps no other host's.
        line = sample.gpu->node + "," + std::to_string(sample.gpu->gpu) + ",";
        for (std::size_t i = 0; i < sample.gpu->ranks.size(); ++i) {
            line += (i > 0 ? "+" : "") + std::to_string(sample.gpu->ranks[i]);
        }
    }
    line += "," + std::to_string(sample.attempt) + "," + std::to_string(sample.generation) + ",";
    line += sample.step < 0 ? "" : std::to_string(sample.step);
    line += ',';
    if (std::isfinite(sample.time)) {
        append_decimal(line, sample.time);
    }
    // A name is of a-z, 0-9 and _: nothing in it has to be quoted.
    line.append(",").append(metric).append(",");
    if (std::isfinite(sample.value)) {
        append_number(line, sample.value);
    } else {
        line += std::isnan(sample.value) ? "NaN" : sample.value > 0 ? "Infinity" : "-Infinity";
    }
    return line + "\r\n";
}

std::string json_line(const Sample& sample, std::string_view metric) {
    std::string line = "{";
    if (sample.gpu == nullptr) {
        line += "\"rank\":" + std::to_string(sample.rank);
    } else {
        line += "\"node\":" + dump_json(Json(sample.gpu->node)) +
                ",\"gpu\":" + std::to_string(sample.gpu->gpu) +
                ",\"ranks\":" + dump_json(Json(sample.gpu->ranks));
    }
    line += ",\"attempt\":" + std::to_string(sample.attempt) +
            ",\"generation\":" + std::to_string(sample.generation) +
            ",\"step\":" + (sample.step < 0 ? "null" : std::to_string(sample.step)) + ",\"time\":";
    if (std::isfinite(sample.time)) {
        append_decimal(line, sample.time);
    } else {
        line += "null";
    }
    line.append(",\"metric\":\"").append(metric).append("\",\"value\":");
    if (std::isfinite(sample.value)) {
        append_number(line, sample.value);
    } else {
        line += std::isnan(sample.value) ? "\"nan\"" : sample.value > 0 ? "\"inf\"" : "\"-inf\"";
    }
    return line + "}\n";
}

Exit export_samples(Context& context, const std::string& id) {
    const Options& options = context.options;
    const std::string& target = !options.tensorboard.empty() ? options.tensorboard
                                : !options.csv.empty()       ? options.csv
                                                             : options.json_lines;
    if (target.empty() || options.json) {
        context.err << "error: export needs one of --tensorboard DIR, --csv FILE, --json FILE\n";
        return Exit::usage;
    }
    const auto plan = plan_of(context, id);
    if (!plan) {
        return ended(context, plan.error());
    }
    const Interruptions interruptions;
    SampleReader reader{context, id, [] { return signalled != 0; }};
    const auto count =
        options.tensorboard.empty()
            ? export_lines(context, reader, *plan, target, !options.csv.empty())
            : export_tensorboard(reader, *plan, target, options.overwrite, context.clock.wall());
    if (!count) {
        return ended(context, count.error());
    }
    if (reader.damaged() > 0) {
        context.err << "warning: " << reader.damaged()
                    << " parts of the history do not read back and are missing\n";
    }
    const bool for_tensorboard = !options.tensorboard.empty();
    const std::uint64_t written = count->samples - (for_tensorboard ? count->without_step : 0);
    if (for_tensorboard && count->without_step > 0) {
        context.err << "warning: " << count->without_step
                    << " samples have no step and are not in TensorBoard's files\n";
    }
    if (written == 0) {
        return report(context,
                      {Errc::not_found, "no samples of " + listed(plan->metrics) +
                                            (plan->of_gpus ? " of these GPUs" : " of these ranks") +
                                            "; nothing was written"});
    }
    if (target != "-") {
        context.out << written << " samples of " << count->ranks
                    << (plan->of_gpus ? " GPU" : " rank") << (count->ranks == 1 ? " in " : "s in ")
                    << one_line(target) << "\n";
    }
    return Exit::ok;
}

}  // namespace lockstep::cli
