// size: what a rank does, and what goes wrong in it, each by a flag of its own
// A rank that joins the others by NCCL through its agent, does every operation once, the most
// common ones with values of every type, then STEPS all-reduces, compares all results and reports
// each step. The libraries are the real ones unless others are named (the double of
// tests/support/nccl_double).
//   nccl_rank [--nccl PATH] [--cuda PATH] [--steps N] [--floats N] [--die RANK STEP] [--leave RANK
//   STEP] [--skip RANK] [--silence MS] [--elastic 1] [--absent RANK] [--other-ids RANK]
//   [--init MS] [--double WORDS] [--bandwidth BYTES] [--roots N]
// --double: what goes wrong in the double (LOCKSTEP_NCCL_DOUBLE, which no job may set).
// --roots: by so many ids; else by as many as a job of this size has, which is one.
// --die: rank RANK ends itself with SIGKILL before step STEP of the first generation; step 0: as
// soon as it has the ids, while the others initialise.
// --leave: rank RANK says before step STEP that it leaves and ends once the others have shrunk the
// communicator (ncclCommShrink), which then sum without it.
// --absent: rank RANK is well and never joins; --init: how long the others wait for it.
// --other-ids: rank RANK has an id that it made by itself, as if it read another job's.
// --skip: rank RANK does step 5 no more, until the others have found that out after --silence.
// --elastic 1: they shrink the communicator then, do that step again and go on; the one that they
// waited for is told by its own watch that it is to blame, and ends as one that leaves.
#include "job/base/text.hpp"
#include "job/rank/nccl_ids.hpp"
#include "job/rank/rank_context.hpp"
#include "job/rank/report.hpp"
#include "job/trainer/client_key_store.hpp"
#include "job/trainer/nccl_meeting.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Values in the GPU's memory; of the double's, that is the host's.
class OnGpu {
  public:
    OnGpu(const CudaDriver& driver, const std::vector<float>& values)
        : OnGpu(driver, values.data(), values.size(), Dtype::f32) {}
    OnGpu(const CudaDriver& driver, const void* values, std::size_t count, Dtype type)
        : driver_(driver), count_(count), type_(type) {
        driver.api.mem_alloc(&at_, bytes());
        driver.api.memcpy_to_gpu(at_, values, bytes());
    }
    ~OnGpu() { driver_.api.mem_free(at_); }
    OnGpu(const OnGpu&) = delete;
    OnGpu& operator=(const OnGpu&) = delete;
    Buffer buffer() const { return {reinterpret_cast<void*>(at_), count_, type_, Device::cuda}; }
    std::vector<float> read() const {
        std::vector<float> out(count_);
        driver_.api.memcpy_from_gpu(out.data(), at_, bytes());
        return out;
    }
    std::vector<std::byte> read_bytes() const {
        std::vector<std::byte> out(bytes());
        driver_.api.memcpy_from_gpu(out.data(), at_, bytes());
        return out;
    }

  private:
    std::size_t bytes() const { return count_ * size_of(type_); }

    const CudaDriver& driver_;
    cuda::Pointer at_ = 0;
    std::size_t count_;
    Dtype type_;
};

bool same(const char* what, const std::vector<float>& got, const std::vector<float>& want) {
    if (got != want) {
        std::printf("%s is wrong: %g, not %g\n", what, static_cast<double>(got[0]),
                    static_cast<double>(want[0]));
    }
    return got == want;
}
bool went(const char* what, const Status& status) {
    if (!status) {
        std::printf("%s: %s\n", what, status.error().text().c_str());
    }
    return status.has_value();
}

double seconds_since_epoch() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// NCCL makes its connections in the first operation: only then have the ranks met.
bool first_sum(Communicator& all, const CudaDriver& driver, double began, double joined) {
    const OnGpu one{driver, {1.0F}};
    if (!went("all-reduce", all.all_reduce(one.buffer())) || !went("barrier", all.barrier()) ||
        !same("first all-reduce", one.read(), {static_cast<float>(all.size())})) {
        return false;
    }
    std::printf("moments: began %.6f joined %.6f summed %.6f\n", began, joined,
                seconds_since_epoch());
    return true;
}

// Many in a row between two barriers, as nccl-tests measures; the median of some such rows.
bool measure_bandwidth(Communicator& all, const CudaDriver& driver, std::size_t bytes) {
    constexpr int kRows = 7;
    constexpr int kInARow = 20;
    const OnGpu zeros{driver, std::vector<float>(bytes / sizeof(float))};
    std::vector<double> seconds;
    for (int row = 0; row <= kRows; ++row) {
        if (!went("barrier", all.barrier())) {
            return false;
        }
        const auto began = Clock::now();
        for (int i = 0; i < kInARow; ++i) {
            if (!went("all-reduce", all.all_reduce(zeros.buffer()))) {
                return false;
            }
        }
        if (!went("barrier", all.barrier())) {
            return false;
        }
        if (row > 0) {  // the first makes connections
            seconds.push_back(since(began) / kInARow);
        }
    }
    std::sort(seconds.begin(), seconds.end());
    std::printf("all-reduce of %zu bytes: %.9f s\n", bytes, seconds[kRows / 2]);
    return true;
}

// Every operation once.
bool each_operation(Communicator& all, const CudaDriver& driver) {
    const auto size = static_cast<std::size_t>(all.size());
    const auto rank = static_cast<float>(all.rank());
    std::vector<float> numbers(size);
    for (std::size_t i = 0; i < size; ++i) {
        numbers[i] = static_cast<float>(i);
    }
    const float sum = static_cast<float>(size * (size - 1)) / 2.0F;
    const OnGpu mine{driver, {rank}};
    const OnGpu every{driver, std::vector<float>(size)};
    const OnGpu shares{driver, numbers};
    const OnGpu share{driver, {0.0F}};
    const OnGpu root{driver, {rank}};
    const OnGpu one{driver, {rank}};
    const OnGpu mean{driver, {rank}};
    const OnGpu passed{driver, {rank}};
    bool good = went("all-gather", all.all_gather(mine.buffer(), every.buffer())) &&
                went("reduce-scatter", all.reduce_scatter(shares.buffer(), share.buffer())) &&
                went("broadcast", all.broadcast(root.buffer(), all.size() - 1)) &&
                went("reduce", all.reduce(one.buffer(), 0, ReduceOp::max)) &&
                went("average", all.all_reduce(mean.buffer(), ReduceOp::average));
    if (good && all.size() > 1 && all.rank() == 0) {
        good = went("send", all.send(passed.buffer(), all.size() - 1));
    } else if (good && all.size() > 1 && all.rank() == all.size() - 1) {
        good = went("recv", all.recv(passed.buffer(), 0));
    }
    good = good && went("barrier", all.barrier());
    const float last = static_cast<float>(size) - 1.0F;
    return good && same("all-gather", every.read(), numbers) &&
           same("reduce-scatter", share.read(), {static_cast<float>(size) * rank}) &&
           same("broadcast", root.read(), {last}) &&
           same("reduce", one.read(), {all.rank() == 0 ? last : rank}) &&
           same("average", mean.read(), {sum / static_cast<float>(size)}) &&
           same("send", passed.read(), {all.rank() == all.size() - 1 ? 0.0F : rank});
}

template <class Value>
std::vector<std::byte> repeated(std::size_t count, Value value) {
    const std::vector<Value> values(count, value);
    std::vector<std::byte> out(count * sizeof(Value));
    std::memcpy(out.data(), values.data(), out.size());
    return out;
}

// `number` so often, as values of this type; it is from 1 to 255, which every type has exactly.
std::vector<std::byte> as_type(Dtype type, std::size_t count, int number) {
    const auto bits = static_cast<unsigned>(number);
    switch (type) {
        case Dtype::u8:
            return repeated(count, static_cast<std::uint8_t>(number));
        case Dtype::i32:
            return repeated(count, std::int32_t{number});
        case Dtype::i64:
            return repeated(count, std::int64_t{number});
        case Dtype::f16: {
            const auto exponent = static_cast<unsigned>(std::bit_width(bits)) - 1;
            return repeated(count,
                            static_cast<std::uint16_t>(((exponent + 15U) << 10U) |
                                                       (((bits << 10U) >> exponent) & 1023U)));
        }
        case Dtype::bf16: {
            const auto whole = std::bit_cast<std::uint32_t>(static_cast<float>(number));
            return repeated(count, static_cast<std::uint16_t>(whole >> 16U));
        }
        case Dtype::f32:
            return repeated(count, static_cast<float>(number));
        case Dtype::f64:
            return repeated(count, static_cast<double>(number));
    }
    return {};
}

// The sum, the largest and the last rank's of each rank's number and 1, by every type.
bool each_type(Communicator& all, const CudaDriver& driver) {
    constexpr std::size_t kValues = 1001;  // no multiple of what a vector register takes
    for (const Dtype type :
         {Dtype::u8, Dtype::i32, Dtype::i64, Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) {
        const std::vector<std::byte> own = as_type(type, kValues, all.rank() + 1);
        const OnGpu sum{driver, own.data(), kValues, type};
        const OnGpu most{driver, own.data(), kValues, type};
        const OnGpu root{driver, own.data(), kValues, type};
        if (!went("sum", all.all_reduce(sum.buffer())) ||
            !went("max", all.all_reduce(most.buffer(), ReduceOp::max)) ||
            !went("broadcast", all.broadcast(root.buffer(), all.size() - 1)) ||
            !went("barrier", all.barrier())) {
            return false;
        }
        const std::vector<std::byte> last = as_type(type, kValues, all.size());
        if (sum.read_bytes() != as_type(type, kValues, all.size() * (all.size() + 1) / 2) ||
            most.read_bytes() != last || root.read_bytes() != last) {
            std::printf("values of type %s are wrong\n", std::string{to_string(type)}.c_str());
            return false;
        }
    }
    std::puts("every type was right");
    return true;
}

// As exchange_nccl_ids(), for as many roots as are asked for instead of one for every 128 ranks.
Result<std::vector<NcclUniqueId>> several_ids(KeyStore& keys, const NcclOptions& options,
                                              std::int32_t roots,
                                              const std::function<Result<NcclUniqueId>()>& make) {
    const auto key = [](std::int32_t root) { return "roots/" + std::to_string(root); };
    if (const auto mine = nccl_root_of_rank(options.rank, options.size, roots)) {
        const auto id = make();
        if (!id) {
            return fail(id.error());
        }
        const std::string_view bytes{reinterpret_cast<const char*>(id->data()), id->size()};
        LOCKSTEP_TRY(keys.set(key(*mine), bytes));
    }
    std::vector<NcclUniqueId> ids(static_cast<std::size_t>(roots));
    for (std::int32_t root = 0; root < roots; ++root) {
        const auto id = keys.wait(key(root), options.init_timeout);
        if (!id) {
            return fail(id.error());
        }
        auto& out = ids[static_cast<std::size_t>(root)];
        std::memcpy(out.data(), id->data(), std::min(id->size(), out.size()));
    }
    std::printf("joins by %d ids\n", roots);
    return ids;
}

std::map<std::string, std::string> read_flags(int argc, char** argv) {
    std::map<std::string, std::string> flags{
        {"--nccl", kNcclLibrary}, {"--cuda", kCudaDriver}, {"--steps", "10"},
        {"--floats", "1024"},     {"--die", "-1"},         {"--die at", "0"},
        {"--leave", "-1"},        {"--leave at", "0"},     {"--elastic", "0"},
        {"--skip", "-1"},         {"--silence", "600000"}, {"--double", ""},
        {"--bandwidth", "0"},     {"--absent", "-1"},      {"--other-ids", "-1"},
        {"--init", "120000"},     {"--roots", "0"}};
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string flag = argv[i];
        flags[flag] = argv[i + 1];
        if ((flag == "--die" || flag == "--leave") && i + 2 < argc) {
            flags[flag + " at"] = argv[++i + 1];
        }
    }
    if (!flags["--double"].empty()) {
        ::setenv("LOCKSTEP_NCCL_DOUBLE", flags["--double"].c_str(), 1);
    }
    return flags;
}
using Flags = std::map<std::string, std::string>;

std::int64_t number(const Flags& flags, const char* flag) {
    return to_int(flags.at(flag)).value_or(0);
}

// The all-reduces after all operations were done once; some ranks may go on without another.
class Steps {
  public:
    Steps(const Flags& flags, const RankContext& context, RankClient& client, KeyStore& keys,
          const CudaDriver& driver)
        : flags_(flags), context_(context), client_(client), keys_(keys), driver_(driver) {
        for (std::int32_t rank = 0; rank < context.world_size; ++rank) {
            members_.push_back(rank);
        }
    }
    // Whom the others waited for; said by the watch of the communicator before it fails.
    void blame(const NcclVerdict& verdict) { blamed_ = verdict.culprits; }
    // Returns the exit status.
    int run(std::unique_ptr<NcclCommunicator> all);

  private:
    bool does(const char* flag, std::int64_t step, const char* at) const {
        return context_.rank == number(flags_, flag) && step == number(flags_, at);
    }
    std::optional<std::vector<float>> sum(std::int64_t step);
    bool go_on_without(std::int32_t gone);
    int leave();
    int stay_away();

    const Flags& flags_;
    const RankContext& context_;
    RankClient& client_;
    KeyStore& keys_;
    const CudaDriver& driver_;
    std::unique_ptr<NcclCommunicator> all_;
    std::vector<std::int32_t> members_;  // of it, by their number in the job
    std::vector<std::int32_t> blamed_;
};

constexpr std::chrono::milliseconds kFarewell{60'000};
constexpr const char* kLeaves = "nccl_rank/leaves";
constexpr const char* kLeft = "nccl_rank/left";
std::string shrunk_key(std::int32_t rank) {
    return "nccl_rank/shrunk/" + std::to_string(rank);
}

// It ends its communicator when all others have shrunk theirs: NCCL shrinks none that has seen a
// connection end.
int Steps::leave() {
    bool good = went("leaves", keys_.set(kLeaves, std::to_string(context_.rank)));
    for (const std::int32_t rank : members_) {
        if (good && rank != context_.rank) {
            const auto shrunk = keys_.wait(shrunk_key(rank), kFarewell);
            good = went("the others go on", shrunk ? Status{} : fail(shrunk.error()));
        }
    }
    all_->abort("this rank leaves");
    all_.reset();
    if (!good || !went("left", keys_.set(kLeft, "1"))) {
        return 1;
    }
    std::puts("left, and the others go on");
    return 0;
}

// Well, and elsewhere, until the others have found that out.
int Steps::stay_away() {
    while (!all_->async_error()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    std::puts(all_->async_error()->text().c_str());
    return number(flags_, "--elastic") == 0 ? 1 : leave();
}

bool Steps::go_on_without(std::int32_t gone) {
    const auto began = Clock::now();
    auto fewer = all_->shrink({&gone, 1});
    if (!went("shrink", fewer ? Status{} : fail(fewer.error())) ||
        !went("shrunk", keys_.set(shrunk_key(context_.rank), "1"))) {
        return false;
    }
    std::printf("shrunk to rank %d of %d without rank %d in %.3f s\n", (*fewer)->rank(),
                (*fewer)->size(), gone, since(began));
    const auto left = keys_.wait(kLeft, kFarewell);
    all_ = std::move(*fewer);
    std::erase(members_, gone);
    return went("the other one left", left ? Status{} : fail(left.error())) &&
           each_operation(*all_, driver_);
}

// Of this step's values; nothing: it failed.
std::optional<std::vector<float>> Steps::sum(std::int64_t step) {
    const auto count = static_cast<std::size_t>(number(flags_, "--floats"));
    const OnGpu values{driver_,
                       std::vector<float>(count, static_cast<float>(context_.rank + step))};
    if (!went("all-reduce", all_->all_reduce(values.buffer())) ||
        !went("barrier", all_->barrier())) {
        return std::nullopt;
    }
    return values.read();
}

int Steps::run(std::unique_ptr<NcclCommunicator> all) {
    all_ = std::move(all);
    Report report;
    const auto leaver = static_cast<std::int32_t>(number(flags_, "--leave"));
    for (std::int64_t step = 1; step <= number(flags_, "--steps"); ++step) {
        if (context_.generation == 1 && does("--die", step, "--die at")) {
            ::raise(SIGKILL);
        }
        if (context_.rank == number(flags_, "--skip") && step == 5) {
            return stay_away();
        }
        if (leaver >= 0 && step == number(flags_, "--leave at")) {
            if (leaver == context_.rank) {
                return leave();
            }
            const auto said = keys_.wait(kLeaves, kFarewell);
            if (!went("one leaves", said ? Status{} : fail(said.error())) ||
                !go_on_without(leaver)) {
                return 1;
            }
        }
        const auto began = Clock::now();
        auto got = sum(step);
        const double took = since(began);
        if (!got && number(flags_, "--elastic") != 0 && blamed_.size() == 1 &&
            go_on_without(blamed_.front())) {
            got = sum(step);
        }
        const auto count = static_cast<std::int64_t>(members_.size());
        const std::int64_t want = std::accumulate(members_.begin(), members_.end(), count * step);
        if (!got ||
            !same("all-reduce", *got, std::vector<float>(got->size(), static_cast<float>(want)))) {
            return 1;
        }
        report.begin(step, 0);
        report.metric("loss", 1.0 / static_cast<double>(step));
        report.metric("step_seconds", took);
        client_.send_now(report.finish());
    }
    std::puts("every result was right");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    Flags flags = read_flags(argc, argv);
    const auto context = read_rank_context();
    if (!context || !context->managed()) {
        std::puts("nccl_rank runs as a rank of a job");
        return 2;
    }
    auto client = RankClient::connect(context->socket);
    auto driver = load_cuda(flags["--cuda"]);
    if (!client || !driver) {
        std::puts((client ? driver.error() : client.error()).text().c_str());
        return 1;
    }
    int gpus = 1;
    driver->api.device_get_count(&gpus);
    ClientKeyStore keys{**client};
    NcclOptions options;
    options.rank = context->rank;
    options.size = context->world_size;
    options.gpu = gpus > 0 ? context->local_rank % gpus : 0;
    options.nccl_library = flags["--nccl"];
    options.cuda_driver = flags["--cuda"];
    options.silence = std::chrono::milliseconds{number(flags, "--silence")};
    options.init_timeout = std::chrono::milliseconds{number(flags, "--init")};
    options.elastic = number(flags, "--elastic") != 0 || number(flags, "--leave") >= 0;
    Steps steps{flags, *context, **client, keys, *driver};
    if (options.elastic) {  // not the agent's business: the others go on
        options.on_verdict = [&steps](const NcclVerdict& verdict) { steps.blame(verdict); };
    }
    const bool dies = context->generation == 1 && context->rank == number(flags, "--die");
    const auto began = Clock::now();
    const double began_at = seconds_since_epoch();
    if (dies && number(flags, "--die at") == 0) {
        // What connect_nccl does, as far as this rank comes.
        static_cast<void>(
            make_nccl(options, keys, [](const auto& make) -> Result<std::vector<NcclUniqueId>> {
                static_cast<void>(make());
                ::raise(SIGKILL);
                return fail(Errc::cancelled, "dead");
            }));
    }
    if (context->rank == number(flags, "--absent")) {
        std::this_thread::sleep_for(std::chrono::minutes{10});  // longer than any test
        return 1;
    }
    const auto own_id = [](const auto& make) -> Result<std::vector<NcclUniqueId>> {
        const auto id = make();
        LOCKSTEP_TRY(id);
        return std::vector{*id};
    };
    const auto roots = static_cast<std::int32_t>(number(flags, "--roots"));
    const auto ids_of_roots = [&](const auto& make) {
        return several_ids(keys, options, roots, make);
    };
    auto all = context->rank == number(flags, "--other-ids") ? make_nccl(options, keys, own_id)
               : roots > 0 ? make_nccl(options, keys, ids_of_roots)
                           : connect_nccl(options, **client, keys);
    if (!all) {
        std::puts(all.error().text().c_str());
        return 1;
    }
    const double joined_at = seconds_since_epoch();
    const auto library = load_nccl(flags["--nccl"]);
    // What it says of itself, so that no line of the double is taken for one of NCCL.
    const char* says = library->api.get_last_error(nullptr);
    const bool is_double = std::string_view{says == nullptr ? "" : says}.ends_with("NCCL double");
    std::printf("rank %d of %d joined in %.3f s: %sNCCL %s from %s, GPU %d of %d\n", context->rank,
                context->world_size, since(began), is_double ? "the DOUBLE of " : "",
                library->version_text().c_str(), flags["--nccl"].c_str(), options.gpu, gpus);
    const auto bytes = static_cast<std::size_t>(number(flags, "--bandwidth"));
    if (!first_sum(**all, *driver, began_at, joined_at) || !each_operation(**all, *driver) ||
        !each_type(**all, *driver) || (bytes > 0 && !measure_bandwidth(**all, *driver, bytes))) {
        return 1;
    }
    return steps.run(std::move(*all));
}
