// The query stream of torch's clients: every dialect, split at every place, and what is not one.
#include "job/agent/torch_store/tcp_store_wire.hpp"

#include "job/agent/torch_store/tcp_store_state.hpp"
#include "tests/unit/agent/tcp_store_streams.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using Step = TcpStoreParser::Step;

struct Seen {
    std::vector<std::string> queries;  // "set /a one"
    bool bad = false;

    bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* out) {
    for (const auto& query : seen.queries) {
        *out << query << "; ";
    }
    *out << (seen.bad ? "bad" : "good");
}

void feed(TcpStoreParser& parser, std::string_view bytes, Seen& seen) {
    StoreQuery query;
    parser.begin(bytes);
    Step step{};
    while ((step = parser.next(query)) == Step::query) {
        std::string words = std::to_string(static_cast<int>(query.op));
        for (const auto part : query.parts) {
            words += " " + std::string{part};
        }
        if (query.op == StoreOp::add || query.op == StoreOp::barrier || query.op == StoreOp::ping) {
            words += " #" + std::to_string(query.number);
        }
        seen.queries.push_back(std::move(words));
    }
    parser.end();
    seen.bad = step == Step::bad;
}

Seen parse(const std::vector<std::string_view>& pieces) {
    TcpStoreParser parser;
    Seen seen;
    for (const auto piece : pieces) {
        feed(parser, piece, seen);
    }
    return seen;
}

void expect_same_however_split(const std::string& stream) {
    const Seen whole = parse({stream});
    ASSERT_FALSE(whole.bad);
    const std::string_view all = stream;
    for (std::size_t at = 1; at < stream.size(); ++at) {
        ASSERT_EQ(parse({all.substr(0, at), all.substr(at)}), whole) << "split at " << at;
    }
    std::vector<std::string_view> bytes;
    for (std::size_t at = 0; at < stream.size(); ++at) {
        bytes.push_back(all.substr(at, 1));
    }
    EXPECT_EQ(parse(bytes), whole);
}

TEST(TcpStoreParser, ReadsEveryCommandOfTheNewestClients) {
    EXPECT_THAT(
        parse({new_client()}).queries,
        ElementsAre("13 #4711", "4 init/ #1", "1 /a one", "2 /a one two", "6 /a", "3 /a",
                    "5 /a /none", "9 /a +", "11 /b B /c ", "10 /a /b /c", "14 /q job", "16 /q",
                    "15 /q", "7", "8 /b", "6 /never", "12", "18 /barrier #1", "17"));
}

TEST(TcpStoreParser, ReadsTheSameHoweverTheStreamIsSplit) {
    expect_same_however_split(new_client());
    expect_same_however_split(guarded_client());
    expect_same_however_split(code(3) + text("init/") + raw(std::int64_t{1}) + code(0) +
                              text("/k") + text("v") + code(9) + list({"/k"}) + code(8) +
                              text("/k") + text("w") + code(7) + text("/k"));
}

TEST(TcpStoreParser, TellsTheReleasesApartByHowTheyBegin) {
    EXPECT_THAT(parse({client_of_2_1()}).queries,
                ElementsAre("4 init/ #1", "1 /k v", "9 /k w", "10 /k", "11 /m n", "8 /m", "6 /x",
                            "12", "7"));
    // Up to 2.0: WATCH_KEY comes on a connection of its own; after DELETE_KEY nothing is sent.
    EXPECT_THAT(parse({code(7) + text("/k"), code(7) + text("/l")}).queries,
                ElementsAre("19 /k", "19 /l"));
    EXPECT_THAT(parse({code(3) + text("init/") + raw(std::int64_t{1}), code(8) + text("/k"),
                       code(8) + text("/l"), code(6)})
                    .queries,
                ElementsAre("4 init/ #1", "8 /k", "8 /l", "7"));
    EXPECT_THAT(parse({guarded_client()}).queries,
                ElementsAre("4 init/ #1", "1 /k v", "3 /k", "7"));
    // The old SET begins with the same byte as VALIDATE.
    EXPECT_THAT(parse({code(0) + text("/k") + text("v")}).queries, ElementsAre("1 /k v"));
}

TEST(TcpStoreParser, RefusesWhatIsNotTheProtocol) {
    const std::string huge = raw(~std::uint64_t{0});
    for (const std::string& stream : {
             std::string{"GET / HTTP/1.1\r\n\r\n"},
             std::string(1000, '\xff'),
             validate() + code(19),
             validate() + validate(),
             validate() + code(200),
             validate() + code(1) + huge,
             validate() + code(1) + text("/k") + huge,
             validate() + code(6) + huge,
             validate() + code(11) + raw(std::uint64_t{limits::kStoreQueryKeys + 1}),
             validate() + code(3) + text(std::string(limits::kStoreKeyBytes + 1, 'k')),
             code(12),
             code(7) + text("/k") + code(9),
             raw(kStoreMagic) + code(6) + code(6) + raw(kStoreMagic),
         }) {
        TcpStoreParser parser;
        Seen seen;
        feed(parser, stream, seen);
        EXPECT_TRUE(seen.bad) << testing::PrintToString(stream.substr(0, 40));
        feed(parser, new_client(), seen);
        EXPECT_TRUE(seen.bad) << "it stays so";
        EXPECT_EQ(parser.kept(), 0U);
    }
}

TEST(TcpStoreParser, KeepsNoMoreThanWhatHasCome) {
    TcpStoreParser parser;
    Seen seen;
    // A value of 8 MiB is announced and never sent.
    feed(parser, validate() + code(1) + text("/k") + raw(std::uint64_t{limits::kStoreValueBytes}),
         seen);
    EXPECT_FALSE(seen.bad);
    EXPECT_TRUE(seen.queries.empty());
    EXPECT_LT(parser.kept(), 64U);
    feed(parser, std::string(1000, 'v'), seen);
    EXPECT_LT(parser.kept(), 1064U);
}

TEST(TcpStoreParser, AQueryOfManyKeysIsReadOnceEvenIfItComesByteByByte) {
    std::vector<std::string> keys(20'000, "/k");
    const std::string stream = validate() + code(6) + list(keys);
    TcpStoreParser parser;
    Seen seen;
    for (std::size_t at = 0; at < stream.size(); ++at) {
        feed(parser, std::string_view{stream}.substr(at, 1), seen);
    }
    ASSERT_EQ(seen.queries.size(), 1U);
    EXPECT_EQ(seen.queries[0].size(), 1 + keys.size() * 3);
}

// Queries of valid streams with bytes changed, cut, doubled and put in: whatever they are, the
// parser and the store live on, and what they hold stays within the cap.
TEST(TcpStoreParser, TenThousandDamagedStreamsHarmNothing) {
    struct Mailbox final : TcpStoreState::Replies {
        std::string& to(TcpStoreState::Id id) override { return boxes[id]; }
        std::map<TcpStoreState::Id, std::string> boxes;
    };
    const std::vector<std::string> streams{new_client(), client_of_2_1(), guarded_client(),
                                           code(7) + text("/k")};
    TcpStoreCaps caps;
    caps.bytes = 1U << 20U;
    caps.reply_bytes = 1U << 16U;
    TcpStoreState state{caps};
    std::mt19937 random{20'261'122};
    const auto below = [&random](std::size_t n) { return n == 0 ? 0 : random() % n; };
    std::size_t bad = 0;
    for (std::size_t round = 0; round < 10'000; ++round) {
        std::string stream = streams[below(streams.size())];
        for (std::size_t change = 0; change <= below(4); ++change) {
            const std::size_t at = below(stream.size());
            switch (below(4)) {
                case 0:
                    stream[at] = static_cast<char>(random());
                    break;
                case 1:
                    stream.erase(at, below(9));
                    break;
                case 2:
                    stream.insert(at, stream.substr(below(stream.size()), below(40)));
                    break;
                default:
                    stream.insert(at, raw(static_cast<std::uint64_t>(random()) << below(60)));
            }
        }
        const std::size_t id = round % 7;
        TcpStoreParser parser;
        Mailbox mailbox;
        StoreQuery query;
        const std::size_t half = below(stream.size());
        for (const auto piece :
             {std::string_view{stream}.substr(0, half), std::string_view{stream}.substr(half)}) {
            parser.begin(piece);
            while (parser.next(query) == Step::query && state.apply(id, query, mailbox)) {
            }
            bad += parser.problem() != nullptr ? 1 : 0;
            parser.end();
        }
        if (below(3) == 0) {
            state.forget(id);
        }
        ASSERT_LE(state.bytes(), caps.bytes + 65'536);
    }
    EXPECT_GT(bad, 1000U);
    for (std::size_t id = 0; id < 7; ++id) {
        state.forget(id);
    }
}

}  // namespace
}  // namespace lockstep::test
