// Runs of TensorBoard: a folder and a file for each.
#include "job/base/machine.hpp"
#include "job/cli/event_file.hpp"
#include "job/cli/export.hpp"
#include "job/cli/new_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Ours end like this, so that an export replaces nothing else.
constexpr std::string_view kSuffix = ".lockstep";
constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr const char* kJobRun = "job";
// Steps whose means are in memory at a time: 8 MiB.
constexpr std::uint64_t kMeans = 65'536;

std::string padded(std::int64_t number, std::size_t width) {
    const std::string digits = std::to_string(number);
    return std::string(width - std::min(width, digits.size()), '0') + digits;
}

// Files are written in here. TensorBoard looks into every folder for names with "tfevents": these
// have none before they are whole.
class WorkFolder {
  public:
    static Result<WorkFolder> make(const fs::path& parent) {
        std::string name = parent / ".lockstep-export-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) {
            return fail(write_error("create a folder in " + parent.string(), errno));
        }
        return WorkFolder{name};
    }
    WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    WorkFolder& operator=(WorkFolder&&) = delete;
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;
    ~WorkFolder() {
        if (!path_.empty()) {
            std::error_code ignored;
            fs::remove_all(path_, ignored);
        }
    }
    fs::path of(const std::string& run) const { return path_ / run; }

  private:
    explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

class EventFile {
  public:
    // `begun`: when the first of it was reported; TensorBoard takes it for the run's beginning.
    static Result<EventFile> create(fs::path path, double begun) {
        auto file = NewFile::create(std::move(path));
        LOCKSTEP_TRY(file);
        EventFile made{std::move(*file)};
        append_version_event(made.record_, begun);
        return made;
    }
    Status add(double time, std::int64_t step, std::string_view tag, double value) {
        append_scalar_event(record_, time, step, tag, value);
        const Status written = file_.write(record_);
        record_.clear();
        return written;
    }
    Status finish() { return file_.finish(); }

  private:
    explicit EventFile(NewFile file) : file_(std::move(file)) {}
    NewFile file_;
    std::string record_;
};

// What is known of a metric in one generation once every sample was seen.
struct Span {
    std::int64_t low = 0, high = 0;  // steps
    std::uint64_t most = 0;          // samples of one rank: how many steps there are, about
    std::map<std::int32_t, std::uint64_t> of_rank;  // in the block that is being read
};
using SpanKey = std::tuple<std::size_t, std::int64_t, std::int64_t>;  // metric, attempt, generation

struct Mean {
    double sum = 0;
    double time = 0;  // of the last rank's report
    std::uint64_t ranks = 0;
};

double known_time(double time) {
    return std::isfinite(time) ? time : 0;
}

class Exporter {
  public:
    Exporter(SampleReader& reader, const ExportPlan& plan, const WorkFolder& work)
        : reader_(reader), plan_(plan), work_(work) {}

    Result<ExportCount> run() {
        for (const auto& block : plan_.blocks) {
            LOCKSTEP_TRY(ranks(block));
        }
        count_.ranks = runs.size();
        if (runs.size() > 1) {
            LOCKSTEP_TRY(means());
        }
        return count_;
    }

    std::vector<std::string> runs;  // that have a file

  private:
    Status ranks(const std::vector<std::int32_t>& block) {
        std::map<std::int32_t, EventFile> files;
        for (std::size_t i = 0; i < plan_.metrics.size(); ++i) {
            const std::string& metric = plan_.metrics[i];
            const auto use = [&](const Sample& sample) -> Status {
                ++count_.samples;
                if (sample.step < 0) {
                    ++count_.without_step;
                    return {};
                }
                note(i, sample);
                auto file = files.find(sample.rank);
                if (file == files.end()) {
                    runs.push_back("rank-" + padded(sample.rank, 5));
                    auto made = EventFile::create(work_.of(runs.back()), known_time(sample.time));
                    LOCKSTEP_TRY(made);
                    file = files.emplace(sample.rank, std::move(*made)).first;
                }
                return file->second.add(known_time(sample.time), sample.step, metric, sample.value);
            };
            if (const Status read = reader_.each({metric, block, std::nullopt}, use); !read) {
                return read;
            }
        }
        for (auto& [key, span] : spans_) {
            for (const auto& [rank, samples] : std::exchange(span.of_rank, {})) {
                span.most = std::max(span.most, samples);
            }
        }
        for (auto& [rank, file] : files) {
            if (const Status done = file.finish(); !done) {
                return done;
            }
        }
        return {};
    }

    void note(std::size_t metric, const Sample& sample) {
        const auto [at, added] =
            spans_.try_emplace(SpanKey{metric, sample.attempt, sample.generation});
        Span& span = at->second;
        span.low = added ? sample.step : std::min(span.low, sample.step);
        span.high = added ? sample.step : std::max(span.high, sample.step);
        ++span.of_rank[sample.rank];
    }

    Status means() {
        std::optional<EventFile> file;
        for (const auto& [key, span] : spans_) {
            const auto& [metric, attempt, generation] = key;
            // As many questions as their answers' means need to be few, however far apart the
            // steps are.
            const std::uint64_t parts = std::max<std::uint64_t>(span.most / kMeans + 1, 1);
            const auto width = static_cast<std::int64_t>(
                static_cast<std::uint64_t>(span.high - span.low) / parts + 1);
            for (std::int64_t from = span.low;; from += width) {
                const std::int64_t to = span.high - from < width ? span.high : from + width - 1;
                const GenerationSteps part{attempt, generation, from, to};
                if (const Status done = means_of(plan_.metrics[metric], part, file); !done) {
                    return done;
                }
                if (to == span.high) {
                    break;
                }
            }
        }
        return file ? file->finish() : Status{};
    }

    Status means_of(const std::string& metric, const GenerationSteps& part,
                    std::optional<EventFile>& file) {
        std::map<std::int64_t, Mean> means;
        for (const auto& block : plan_.blocks) {
            const auto use = [&means](const Sample& sample) -> Status {
                Mean& mean = means[sample.step];
                mean.sum += sample.value;
                mean.time = std::max(mean.time, known_time(sample.time));
                ++mean.ranks;
                return {};
            };
            if (const Status read = reader_.each({metric, block, part}, use); !read) {
                return read;
            }
        }
        for (const auto& [step, mean] : means) {
            if (!file) {
                auto made = EventFile::create(work_.of(kJobRun), mean.time);
                LOCKSTEP_TRY(made);
                file.emplace(std::move(*made));
                runs.emplace_back(kJobRun);
            }
            const double value = mean.sum / static_cast<double>(mean.ranks);
            if (const Status added = file->add(mean.time, step, metric, value); !added) {
                return added;
            }
        }
        return {};
    }

    SampleReader& reader_;
    const ExportPlan& plan_;
    const WorkFolder& work_;
    ExportCount count_;
    std::map<SpanKey, Span> spans_;
};

// Files of an earlier export in the folder.
Result<std::vector<fs::path>> exports_in(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator run{folder, error}, end; !error && run != end;
         run.increment(error)) {
        const std::string name = run->path().filename();
        std::error_code no_folder;
        if (name != kJobRun && !name.starts_with("rank-")) {
            continue;
        }
        for (fs::directory_iterator file{run->path(), no_folder}, last; !no_folder && file != last;
             file.increment(no_folder)) {
            const std::string text = file->path().filename();
            if (text.starts_with(kPrefix) && text.ends_with(kSuffix)) {
                found.push_back(file->path());
            }
        }
    }
    if (error) {
        return fail(write_error("read " + folder.string(), error.value()));
    }
    std::sort(found.begin(), found.end());
    return found;
}

Status publish(const WorkFolder& work, const std::vector<std::string>& runs, const fs::path& folder,
               const std::vector<fs::path>& old, UnixMillis now) {
    std::string name{kPrefix};
    name.append(padded(now / 1000, 10)).append(".").append(host_name()).append(kSuffix);
    std::error_code error;
    for (const fs::path& file : old) {
        if (!fs::remove(file, error) && error) {
            return fail(write_error("remove " + file.string(), error.value()));
        }
        std::error_code not_empty;
        fs::remove(file.parent_path(), not_empty);
    }
    for (const std::string& run : runs) {
        const fs::path place = folder / run;
        fs::create_directories(place, error);
        if (error) {
            return fail(write_error("create " + place.string(), error.value()));
        }
        fs::rename(work.of(run), place / name, error);
        if (error) {
            return fail(write_error("rename to " + (place / name).string(), error.value()));
        }
    }
    return {};
}

}  // namespace

Result<ExportCount> export_tensorboard(SampleReader& reader, const ExportPlan& plan,
                                       const fs::path& folder, bool overwrite, UnixMillis now) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
        return fail(write_error("create " + folder.string(), error.value()));
    }
    const auto old = exports_in(folder);
    LOCKSTEP_TRY(old);
    if (!old->empty() && !overwrite) {
        return fail(Errc::conflict,
                    "an export is there: " + old->front().string() + " (--overwrite replaces it)");
    }
    const auto work = WorkFolder::make(folder);
    LOCKSTEP_TRY(work);
    Exporter exporter{reader, plan, *work};
    auto count = exporter.run();
    if (!count || count->samples == count->without_step) {
        return count;
    }
    LOCKSTEP_TRY(publish(*work, exporter.runs, folder, *old, now));
    return count;
}

}  // namespace lockstep::cli
