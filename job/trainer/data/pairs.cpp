// Pairs of texts, "source TAB target" on each line, as the files of bilingual sentences that the
// seq2seq tutorials of PyTorch and Keras read (a third column is left alone). Every tenth pair is
// for the test.
// A sample of input is the source's bytes, padded to `context`, and what the decoder reads: a begin
// mark and the target, padded to context + 1. The answers are the target and an end mark.
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::uint8_t kPadding = 0;  // ColumnType::answer: no answer
constexpr std::uint8_t kBegin = 2;    // STX and ETX, which no text has
constexpr std::uint8_t kEnd = 3;
constexpr std::size_t kTestEvery = 10;

struct Pair {
    std::string_view source;
    std::string_view target;
};

// What is wrong with a line, or its pair.
Result<Pair> parse_pair(std::string_view line) {
    const auto wrong = [](const char* what) { return fail(Errc::invalid, what); };
    const auto is_mark = [](char c) { return c == kPadding || c == kBegin || c == kEnd; };
    if (std::any_of(line.begin(), line.end(), is_mark)) {
        return wrong("has one of the bytes 0, 2 and 3, which mark the ends of texts");
    }
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
        return wrong("has no tab between source and target");
    }
    const std::string_view rest = line.substr(tab + 1);
    const Pair pair{line.substr(0, tab), rest.substr(0, rest.find('\t'))};
    if (pair.source.empty() || pair.target.empty()) {
        return wrong("has an empty source or target");
    }
    return pair;
}

struct Pairs {
    std::vector<Pair> train;
    std::vector<Pair> test;
    std::size_t longer = 0;  // left out
};

Result<Pairs> parse_pairs(std::string_view text, std::size_t context) {
    Pairs out;
    std::size_t number = 0;
    for (std::size_t line = 1; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view one = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (one.ends_with('\r')) {
            one.remove_suffix(1);
        }
        if (one.empty()) {
            continue;
        }
        const Result<Pair> pair = parse_pair(one);
        if (!pair) {
            return fail(Errc::invalid, "line " + std::to_string(line) + " " + pair.error().message);
        }
        if (pair->source.size() > context || pair->target.size() > context) {
            ++out.longer;
            continue;
        }
        (++number % kTestEvery == 0 ? out.test : out.train).push_back(*pair);
    }
    return out;
}

// All samples, each [source][begin target][target end], padded.
SampleSet pair_samples(const std::vector<Pair>& pairs, std::int64_t context) {
    const auto length = static_cast<std::size_t>(context);
    const std::size_t input = 2 * length + 1;
    const std::size_t stride = input + length + 1;
    std::vector<std::uint8_t> bytes(pairs.size() * stride, kPadding);
    auto at = bytes.begin();
    for (const Pair& pair : pairs) {
        std::copy(pair.source.begin(), pair.source.end(), at);
        auto reads = at + context;
        *reads++ = kBegin;
        std::copy(pair.target.begin(), pair.target.end(), reads);
        const auto answers = at + static_cast<std::ptrdiff_t>(input);
        *std::copy(pair.target.begin(), pair.target.end(), answers) = kEnd;
        at += static_cast<std::ptrdiff_t>(stride);
    }
    const auto shared = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
    SampleSet set;
    set.count = static_cast<std::uint32_t>(pairs.size());
    set.input.type = ColumnType::index;
    set.input.shape = {2 * context + 1};
    set.input.bytes = shared;
    set.input.stride = stride;
    set.target.type = ColumnType::answer;
    set.target.shape = {context + 1};
    set.target.bytes = shared;
    set.target.offset = input;
    set.target.stride = stride;
    return set;
}

}  // namespace

Result<Dataset> load_pairs(const TrainConfig& config) {
    const Result<std::string> read = read_file(config.dataset_path, limits::kPairsFileBytes);
    LOCKSTEP_TRY(read);
    const auto wrong = [&](const std::string& what) {
        return fail(Errc::invalid, config.dataset_path + ": " + what);
    };
    if (!read->empty() && read->back() != '\n') {
        return wrong("the last line has no end: the file is cut off");
    }
    const auto context = static_cast<std::size_t>(config.context);
    const Result<Pairs> pairs = parse_pairs(*read, context);
    if (!pairs) {
        return wrong(pairs.error().message);
    }
    if (pairs->test.empty()) {
        return wrong(std::to_string(pairs->train.size()) + " pairs of at most context = " +
                     std::to_string(context) + " bytes each, must be at least 10 (" +
                     std::to_string(pairs->longer) + " are longer)");
    }
    if ((pairs->train.size() + pairs->test.size()) >
        limits::kPairsSampleBytes / (3 * context + 2)) {
        return wrong("too many pairs for a context of " + std::to_string(context));
    }
    if (pairs->longer > 0) {
        log::info("pairs left out that are longer than context",
                  {{"pairs", pairs->longer}, {"context", config.context}});
    }
    Dataset data;
    data.classes = kByteClasses;
    data.train = pair_samples(pairs->train, config.context);
    data.test = pair_samples(pairs->test, config.context);
    return data;
}

}  // namespace lockstep
