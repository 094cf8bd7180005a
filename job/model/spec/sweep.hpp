// A sweep: one document, many jobs. Every combination of the parameters' values is a job of its own
// (not a task of a Slurm job array): it is accepted, submitted exactly once, followed, cancelled
// and explained like any other, on every scheduler; a task of an array shares its script and its
// submission with all others. Plain values and pure functions; any thread.
#pragma once

#include "job/base/json.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct SweepPoint {
    Json parameters;  // {"train.learning_rate": 0.1, …}: what differs
    Json shown;       // the same for everybody who may see the job, with kMaskedValue for a secret
    JobSpec spec;
};

struct Sweep {
    std::int32_t max_parallel = 0;   // jobs of it that may be unfinished at once; 0 = all
    std::vector<SweepPoint> points;  // the last parameter changes fastest; never empty
};

// Of which sweep a job is one; its id is that of the sweep's first job.
struct SweepMember {
    std::string id;
    std::int32_t index = 0;
    std::int32_t size = 0;
    std::int32_t max_parallel = 0;
    Json parameters = Json::object();  // as shown
};

// kMaskedValue for what is set in environment, recorded_environment or notify, by its path. Of what
// is filled in there in braces only the making of the sweep knows it (SweepPoint::shown).
void mask_parameters(Json& parameters);
// The same in the view of a job (job_view.hpp), where a version before 0.2.0 has stored it.
std::string masked_view(std::string view);

// Whether the document asks for a sweep: `sweep` is there and not empty.
bool has_sweep(const Json& document);

// The jobs of a sweep, made one by one: a thousand take seconds, and whoever has others to serve
// serves them between two. A value; any thread.
class SweepMaker {
  public:
    // Of a document that has_sweep(). What is wrong with the sweep itself is said here.
    static Result<SweepMaker> begin(const Json& document);
    bool whole() const { return made_.points.size() == size_; }
    // The next job, while it is not whole. invalid: as parse_sweep().
    Status next();
    // That one alone; the maker stays as it is. invalid: there is none, or as next().
    Result<SweepPoint> point(std::size_t number) const;
    // Once it is whole; the maker is of no use then.
    Sweep take() { return std::move(made_); }

  private:
    SweepMaker() = default;
    std::function<Result<SweepPoint>(std::size_t)> point_;
    std::size_t size_ = 0;
    Sweep made_;
};

// {"parameters": {"<path or placeholder>": [values]}, "max_parallel": n}. A name that stands in
// braces in a text of the document, as {lr} in the command, is filled in there. Else it names a
// field by its keys and indices with dots between them: train.learning_rate, environment.SEED,
// command.3. What is on the way is made if it is not there. invalid: with the pointer of the
// parameter, or of the field whose value does not fit at some point.
Result<Sweep> parse_sweep(const Json& document);

}  // namespace lockstep
