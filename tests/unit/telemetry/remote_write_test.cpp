// Remote write without a receiver: the bytes, the series that end, the queue and its pauses.
#include "daemon/telemetry/exposition/metric_text.hpp"
#include "daemon/telemetry/remote_write/remote_message.hpp"
#include "daemon/telemetry/remote_write/remote_queue.hpp"
#include "daemon/telemetry/remote_write/remote_series.hpp"
#include "daemon/telemetry/remote_write/remote_writer.hpp"
#include "job/base/text.hpp"
#include "tests/support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <snappy.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

namespace lockstep::telemetry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using namespace std::chrono_literals;

// A reader of protobuf that shares nothing with the writer: fields in any order, unknown ones
// skipped.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    bool more() const { return !rest_.empty(); }
    // The field's number; its content in number() or bytes().
    unsigned next() {
        const std::uint64_t tag = varint();
        switch (tag & 7U) {
            case 0:
                number_ = varint();
                break;
            case 1:
                number_ = 0;
                for (unsigned i = 0; i < 8; ++i) {
                    number_ |= static_cast<std::uint64_t>(byte()) << (8 * i);
                }
                break;
            case 2: {
                const std::size_t size = varint();
                EXPECT_LE(size, rest_.size());
                bytes_ = rest_.substr(0, size);
                rest_.remove_prefix(std::min(size, rest_.size()));
                break;
            }
            default:
                ADD_FAILURE() << "wire type " << (tag & 7U);
                rest_ = {};
        }
        return static_cast<unsigned>(tag >> 3U);
    }
    std::uint64_t number() const { return number_; }
    std::string_view bytes() const { return bytes_; }

  private:
    unsigned char byte() {
        EXPECT_FALSE(rest_.empty());
        const char c = rest_.empty() ? '\0' : rest_.front();
        rest_.remove_prefix(rest_.empty() ? 0 : 1);
        return static_cast<unsigned char>(c);
    }
    std::uint64_t varint() {
        std::uint64_t out = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const unsigned char c = byte();
            out |= static_cast<std::uint64_t>(c & 0x7FU) << shift;
            if (c < 0x80) {
                break;
            }
        }
        return out;
    }
    std::string_view rest_;
    std::uint64_t number_ = 0;
    std::string_view bytes_;
};

struct Read {
    RemoteLabels labels;
    std::uint64_t value = 0;  // its bits
    std::int64_t time = 0;
};

std::vector<Read> decode(const std::string& compressed) {
    std::string plain;
    EXPECT_TRUE(snappy::Uncompress(compressed.data(), compressed.size(), &plain));
    std::vector<Read> out;
    for (Reader request{plain}; request.more();) {
        EXPECT_EQ(request.next(), 1U);
        Read one;
        for (Reader series{request.bytes()}; series.more();) {
            const unsigned field = series.next();
            Reader inner{series.bytes()};
            std::string name;
            while (inner.more()) {
                const unsigned part = inner.next();
                if (field == 1 && part == 1) {
                    name = inner.bytes();
                } else if (field == 1) {
                    one.labels.emplace_back(name, inner.bytes());
                } else if (part == 1) {
                    one.value = inner.number();
                } else {
                    one.time = static_cast<std::int64_t>(inner.number());
                }
            }
        }
        out.push_back(std::move(one));
    }
    return out;
}

TEST(RemoteMessage, HasTheBytesOfTheWireFormat) {
    RemoteMessage message{{}};
    ASSERT_TRUE(message.add({"m", "a=\"b\""}, 1, 300));
    const std::string compressed = message.take();
    std::string plain;
    ASSERT_TRUE(snappy::Uncompress(compressed.data(), compressed.size(), &plain));
    const std::string expected{
        "\x0a\x25"                                      // timeseries, 37 bytes
        "\x0a\x0d\x0a\x08__name__\x12\x01m"             // label: name 1, value 2
        "\x0a\x06\x0a\x01\x61\x12\x01\x62"              // a="b"
        "\x12\x0c\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02"  // sample: 1.0 little-endian, 300
        ,
        39};
    EXPECT_EQ(plain, expected);
}

TEST(RemoteMessage, SortsTheLabelsAndUnescapesTheirValues) {
    RemoteMessage message{{{"job", "lockstep"}, {"instance", "host:1"}}};
    ASSERT_TRUE(message.add({"lockstep_job_info", R"(job_id="ls-1",name="a\"b\\c\nd,}={",z="\\")"},
                            0.5, 7));
    ASSERT_TRUE(message.add({"lockstep_jobs_submitted_total", ""}, 3, 1'700'000'000'123));
    EXPECT_EQ(message.samples(), 2U);
    const auto read = decode(message.take());
    ASSERT_EQ(read.size(), 2U);
    EXPECT_THAT(read[0].labels,
                ElementsAre(Pair("__name__", "lockstep_job_info"), Pair("instance", "host:1"),
                            Pair("job", "lockstep"), Pair("job_id", "ls-1"),
                            Pair("name", "a\"b\\c\nd,}={"), Pair("z", "\\")));
    EXPECT_EQ(std::bit_cast<double>(read[0].value), 0.5);
    EXPECT_EQ(read[1].time, 1'700'000'000'123);
    EXPECT_EQ(message.samples(), 0U) << "taken";
    EXPECT_EQ(decode(message.take()).size(), 0U);
}

TEST(RemoteMessage, TellsTheMarkerFromEveryOtherNaN) {
    RemoteMessage message{{}};
    ASSERT_TRUE(message.add({"a", ""}, stale_marker(), 1));
    ASSERT_TRUE(message.add({"a", ""}, std::numeric_limits<double>::quiet_NaN(), 1));
    ASSERT_TRUE(message.add({"a", ""}, -std::numeric_limits<double>::quiet_NaN(), 1));
    ASSERT_TRUE(message.add({"a", ""}, -std::numeric_limits<double>::infinity(), 1));
    const auto read = decode(message.take());
    EXPECT_EQ(read[0].value, 0x7ff0000000000002U);
    EXPECT_EQ(read[1].value, 0x7ff8000000000001U);
    EXPECT_EQ(read[2].value, 0x7ff8000000000001U);
    EXPECT_EQ(read[3].value, 0xfff0000000000000U);
}

TEST(RemoteMessage, RefusesWhatIsNoSeries) {
    RemoteMessage message{{}};
    EXPECT_FALSE(message.add({"", "a=\"b\""}, 1, 1));
    for (const char* bad : {"a=\"b", "a=b", "=\"b\"", "a=\"b\"x", "a", "a=\"b\\", "a=\"\\n"}) {
        EXPECT_FALSE(message.add({"m", bad}, 1, 1)) << bad;
    }
    EXPECT_EQ(message.samples(), 0U);
}

class SeriesRead : public testing::Test {
  protected:
    struct One {
        std::string name;
        std::string labels;
        double value;
    };
    std::vector<std::pair<std::string, double>> read(const std::vector<One>& collected) {
        MetricSamples samples;
        for (const One& one : collected) {
            samples.add(one.name, "", one.labels, one.value);
        }
        std::vector<std::pair<std::string, double>> out;
        series_.read(std::move(samples), [&out](const MetricSeries& series, double value) {
            const bool stale = std::bit_cast<std::uint64_t>(value) == kStaleNaN;
            out.emplace_back(std::string{series.name} + std::string{series.labels},
                             stale ? -1 : value);
        });
        return out;
    }
    RemoteSeries series_;
};

TEST_F(SeriesRead, ASeriesThatIsGoneEndsOnceWithAMarker) {
    EXPECT_THAT(read({{"a", "r=\"0\"", 1}, {"a", "r=\"1 2\"", 2.5}, {"b", "", 3}}),
                ElementsAre(Pair("ar=\"0\"", 1), Pair("ar=\"1 2\"", 2.5), Pair("b", 3)));
    EXPECT_THAT(
        read({{"b", "", 4}}),
        testing::UnorderedElementsAre(Pair("b", 4), Pair("ar=\"0\"", -1), Pair("ar=\"1 2\"", -1)));
    EXPECT_THAT(read({{"b", "", 4}}), ElementsAre(Pair("b", 4)));
    EXPECT_THAT(read({}), ElementsAre(Pair("b", -1)));
    EXPECT_THAT(read({}), IsEmpty());
    EXPECT_THAT(read({{"b", "", 5}}), ElementsAre(Pair("b", 5)));
}

TEST_F(SeriesRead, OneThatTakesAnothersPlaceEndsIt) {
    read({{"a", "r=\"0\"", 1}, {"a", "r=\"1\"", 1}});
    EXPECT_THAT(read({{"a", "r=\"1\"", 1}, {"a", "r=\"2\"", 1}}),
                ElementsAre(Pair("ar=\"1\"", 1), Pair("ar=\"2\"", 1), Pair("ar=\"0\"", -1)));
    EXPECT_THAT(read({{"a", "r=\"2\"", 1}, {"a", "r=\"1\"", 1}}),
                ElementsAre(Pair("ar=\"2\"", 1), Pair("ar=\"1\"", 1)))
        << "in another order, all of them";
    // The same bytes, cut elsewhere.
    read({{"ab", "c", 1}});
    EXPECT_THAT(read({{"a", "bc", 1}}), ElementsAre(Pair("abc", 1), Pair("abc", -1)));
}

// The same calls make a text or samples.
TEST(MetricSamples, AreWhatTheTextSays) {
    const auto write = [](MetricText& text) {
        std::string labels;
        add_label(labels, "name", "a\"b\\c\nd");
        text.family("steps", MetricType::counter, "Steps.");
        text.sample(labels, std::uint64_t{12'345'678'901});
        text.sample("", 0.1);
        text.family("job", MetricType::info, "About it.");
        text.sample(labels, 1.0);
        text.family("no", MetricType::gauge, "Nothing.");
        text.family("loss", MetricType::gauge, "Loss.");
        text.sample("a=\"1\"", -std::numeric_limits<double>::infinity());
        text.sample("_bucket", "le=\"1\"", 1e-7);
        text.end();
    };
    MetricSamples samples;
    MetricText collected{samples};
    write(collected);
    std::string lines;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto [name, labels] = samples.series(i);
        std::string value;
        MetricText one{TextFormat::prometheus, value};
        one.family("v", MetricType::gauge, "");
        one.sample("", samples.value(i));
        lines += std::string{name} + (labels.empty() ? "" : "{" + std::string{labels} + "}") +
                 value.substr(value.rfind(' '));
    }
    std::string expected;
    MetricText text{TextFormat::prometheus, expected};
    write(text);
    std::string samples_of_text;
    for (const std::string& line : split(expected, '\n')) {
        samples_of_text += line.empty() || line.front() == '#' ? "" : line + "\n";
    }
    EXPECT_EQ(lines, samples_of_text);
    EXPECT_EQ(samples.size(), 5U);
}

TEST(RemoteQueue, KeepsTheNewestThatFitAndCountsTheRest) {
    RemoteQueue queue{10};
    EXPECT_EQ(queue.push({"1234", 1}), 0U);
    EXPECT_EQ(queue.push({"567890", 20}), 0U);
    EXPECT_EQ(queue.bytes(), 10U);
    EXPECT_EQ(queue.push({"abc", 300}), 1U) << "the oldest";
    EXPECT_EQ(queue.samples(), 320U);
    RemoteRequest first = queue.take();
    EXPECT_EQ(first.body, "567890");
    EXPECT_EQ(queue.push({"defgh", 4000}), 0U) << "what is being sent takes no room";
    // It is the oldest, and there is no room for it any more.
    EXPECT_EQ(queue.put_back(std::move(first)), 20U);
    first = queue.take();
    EXPECT_EQ(first.body, "abc");
    EXPECT_EQ(queue.put_back(std::move(first)), 0U);
    EXPECT_EQ(queue.take().body, "abc") << "to be tried again before the others";
    EXPECT_EQ(queue.take().body, "defgh");
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(queue.bytes(), 0U);
    EXPECT_EQ(queue.push({std::string(11, 'x'), 5}), 5U) << "larger than all of it";
    EXPECT_TRUE(queue.empty());
}

class HandClock final : public Clock {
  public:
    UnixMillis wall() const override { return now_.count(); }
    std::chrono::steady_clock::time_point steady() const override {
        return std::chrono::steady_clock::time_point{now_};
    }
    void advance(std::chrono::milliseconds time) { now_ += time; }

  private:
    std::chrono::milliseconds now_{1'000'000};
};

TEST(RemotePace, PausesLongerAfterEachFailureAndNotAtAllAfterASuccess) {
    HandClock clock;
    RemotePace pace{clock};
    EXPECT_EQ(pace.wait(), 0ms);
    for (const auto expected : {250ms, 500ms, 1000ms, 2000ms, 4000ms, 5000ms, 5000ms}) {
        pace.failed(std::nullopt);
        EXPECT_EQ(pace.wait(), expected);
        clock.advance(expected - 1ms);
        EXPECT_EQ(pace.wait(), 1ms);
        clock.advance(1ms);
        EXPECT_EQ(pace.wait(), 0ms);
    }
    pace.succeeded();
    EXPECT_EQ(pace.wait(), 0ms);
    pace.failed(std::nullopt);
    EXPECT_EQ(pace.wait(), 250ms) << "from the beginning";
    // As the receiver says: not sooner than we would ourselves, and not in an hour.
    pace.failed(60s);
    EXPECT_EQ(pace.wait(), 60s);
    pace.failed(0s);
    EXPECT_EQ(pace.wait(), 1s);
    pace.failed(3600s);
    EXPECT_EQ(pace.wait(), 300s);
}

TEST(RemoteAnswer, IsTakenRefusedOrTriedAgain) {
    const auto verdict = [](int status) { return judge(ClientResponse{status, {}, {}}); };
    for (const int good : {200, 202, 204}) {
        EXPECT_EQ(verdict(good), RemoteVerdict::taken) << good;
    }
    for (const int later : {429, 500, 502, 503, 504}) {
        EXPECT_EQ(verdict(later), RemoteVerdict::again) << later;
    }
    for (const int never : {301, 400, 401, 403, 404, 413, 415, 422}) {
        EXPECT_EQ(verdict(never), RemoteVerdict::refused) << never;
    }
    EXPECT_EQ(judge(fail(Errc::timed_out, "")), RemoteVerdict::again);
    EXPECT_EQ(retry_after({429, {}, {{"Retry-After", " 7 "}}}), 7s);
    EXPECT_EQ(retry_after({429, {}, {{"retry-after", "99999999"}}}), 300s);
    for (const char* none : {"", "-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"}) {
        EXPECT_EQ(retry_after({429, {}, {{"Retry-After", none}}}), std::nullopt) << none;
    }
}

TEST(RemoteWriteUrl, IsReadWithItsPathOrRefusedInWords) {
    const auto good = parse_remote_write("https://metrics.example/api/v1/push?tenant=a");
    ASSERT_TRUE(good);
    EXPECT_EQ(good->endpoint.host, "metrics.example");
    EXPECT_EQ(good->endpoint.port, "443");
    EXPECT_TRUE(good->endpoint.tls);
    EXPECT_EQ(good->target, "/api/v1/push?tenant=a");
    EXPECT_EQ(parse_remote_write("http://h")->endpoint.port, "80");
    EXPECT_EQ(parse_remote_write("http://h")->target, "/");
    EXPECT_EQ(parse_remote_write("http://h?x=1")->target, "/?x=1");
    EXPECT_EQ(parse_remote_write("http://[::1]:9090/w")->endpoint.port, "9090");
    EXPECT_EQ(parse_remote_write("http://[::1]/w")->endpoint.port, "80");
    EXPECT_EQ(parse_remote_write("http://h:9090")->endpoint.authority(), "h:9090");
    for (const char* bad : {"", "h:9090", "ftp://h/w", "http://", "http:///w", "http://h:0/w",
                            "http://h:x/w", "http://u:p@h/w", "http://h/w#x", "http://h/a b",
                            "http://h/\r\nX: y", "http://h/\xc3\xa4"}) {
        EXPECT_FALSE(parse_remote_write(bad)) << bad;
    }
}

TEST(RemoteWriteSecret, ComesFromAFileThatIsReadEachTime) {
    const test::TemporaryFolder folder;
    RemoteWriteSettings settings;
    EXPECT_EQ(authorization(settings).value(), "");
    settings.token_file = folder / "token";
    const auto missing = authorization(settings);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, testing::HasSubstr(settings.token_file));
    const auto write = [&](const char* text) { std::ofstream{settings.token_file} << text; };
    write("first\n");
    EXPECT_EQ(authorization(settings).value(), "Bearer first");
    write("second");
    EXPECT_EQ(authorization(settings).value(), "Bearer second");
    for (const char* bad : {"", "\n", "two\nlines\n"}) {
        write(bad);
        EXPECT_FALSE(authorization(settings)) << bad;
    }
    write("open sesame\n");
    settings.password_file = std::exchange(settings.token_file, "");
    settings.user = "Aladdin";  // the example of RFC 7617
    EXPECT_EQ(authorization(settings).value(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

}  // namespace
}  // namespace lockstep::telemetry
