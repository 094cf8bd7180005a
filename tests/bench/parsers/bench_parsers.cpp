// Lockstep's own readers of what agents send, beside the libraries that could stand in their place,
// on the same bytes in one run:
//
//   frames    WebSocket: daemon/http/base/ws_frames.hpp and wslay, the server's end; messages of an
//   agent
//             (200 bytes) and batches (16 KiB), in pieces of 64 KiB as a socket gives them
//   messages  JSON: job/model/wire/flat_json.hpp and simdjson (On Demand), the STARTED of a node of
//   8
//             ranks, every field read into the same struct; and nlohmann's parser, which reads what
//             flat_json leaves
//   memory    what a connection that is idle after a message holds, by malloc's own count
//
// bench_parsers [ROUNDS]: a line each with the median of the rounds.
#include "daemon/http/base/ws_frames.hpp"
#include "job/base/json.hpp"
#include "job/model/wire/wire.hpp"

#include <malloc.h>
#include <simdjson.h>
#include <wslay/wslay.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kPiece = 64U << 10U;
constexpr std::size_t kMost = 1U << 20U;

// As a client sends it: masked.
std::string frame_of(std::string_view payload, ws::Opcode opcode) {
    const std::array<char, 4> mask{'\x12', '\x34', '\x56', '\x78'};
    const ws::Head head = ws::head_of(opcode, payload.size());
    std::string out{head.view()};
    out[1] = static_cast<char>(static_cast<unsigned char>(out[1]) | 0x80U);
    out.append(mask.data(), mask.size());
    for (std::size_t i = 0; i < payload.size(); ++i) {
        out += static_cast<char>(payload[i] ^ mask[i % 4]);
    }
    return out;
}

// Frames one after the other; both readers unmask in place or copy, so each round has a fresh copy.
struct Stream {
    std::string bytes;
    std::size_t messages = 0;
};

Stream stream_of(std::string_view payload, ws::Opcode opcode, std::size_t messages) {
    const std::string frame = frame_of(payload, opcode);
    Stream out;
    out.messages = messages;
    for (std::size_t i = 0; i < messages; ++i) {
        out.bytes += frame;
    }
    return out;
}

std::size_t read_own(ws::FrameReader& reader, std::string& bytes) {
    std::size_t messages = 0;
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
        reader.feed({bytes.data() + at, std::min(kPiece, bytes.size() - at)});
        for (auto event = reader.next(); event.kind != ws::FrameReader::Kind::none;
             event = reader.next()) {
            messages += 1;
            if (event.kind == ws::FrameReader::Kind::broken) {
                std::abort();
            }
        }
    }
    return messages;
}

// wslay asks for its bytes, and hands messages over.
class Wslay {
  public:
    Wslay() {
        wslay_event_callbacks calls{};
        calls.recv_callback = [](wslay_event_context* context, std::uint8_t* buffer,
                                 std::size_t size, int, void* self) -> ssize_t {
            auto& mine = *static_cast<Wslay*>(self);
            if (mine.left_.empty()) {
                wslay_event_set_error(context, WSLAY_ERR_WOULDBLOCK);
                return -1;
            }
            const std::size_t take = std::min(size, mine.left_.size());
            std::memcpy(buffer, mine.left_.data(), take);
            mine.left_.remove_prefix(take);
            return static_cast<ssize_t>(take);
        };
        calls.on_msg_recv_callback = [](wslay_event_context*,
                                        const wslay_event_on_msg_recv_arg* message, void* self) {
            auto& mine = *static_cast<Wslay*>(self);
            mine.messages_ += 1;
            mine.bytes_ += message->msg_length;
        };
        if (wslay_event_context_server_init(&context_, &calls, this) != 0) {
            std::abort();
        }
        wslay_event_config_set_max_recv_msg_length(context_, kMost);
    }
    ~Wslay() { wslay_event_context_free(context_); }
    Wslay(const Wslay&) = delete;
    Wslay& operator=(const Wslay&) = delete;

    std::size_t read(std::string_view bytes) {
        messages_ = 0;
        for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
            left_ = bytes.substr(at, kPiece);
            if (wslay_event_recv(context_) != 0) {
                std::abort();
            }
        }
        return messages_;
    }

  private:
    wslay_event_context* context_ = nullptr;
    std::string_view left_;
    std::size_t messages_ = 0;
    std::uint64_t bytes_ = 0;
};

double seconds_of(const std::function<void()>& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void check(bool good, const char* what) {
    if (!good) {
        std::fprintf(stderr, "bench_parsers: %s\n", what);
        std::exit(1);
    }
}

void frames(int rounds, const char* name, std::string_view payload, ws::Opcode opcode,
            std::size_t messages) {
    const Stream stream = stream_of(payload, opcode, messages);
    std::vector<double> own;
    std::vector<double> theirs;
    for (int round = 0; round < rounds; ++round) {
        std::string bytes = stream.bytes;
        ws::FrameReader reader{kMost};
        std::size_t read = 0;
        own.push_back(seconds_of([&] { read = read_own(reader, bytes); }));
        check(read == messages, "FrameReader lost a message");
        Wslay wslay;
        theirs.push_back(seconds_of([&] { read = wslay.read(stream.bytes); }));
        check(read == messages, "wslay lost a message");
    }
    const double each = 1e9 / static_cast<double>(messages);
    std::printf("frames, %s: own %.0f ns a message, wslay %.0f: %.2f x\n", name, median(own) * each,
                median(theirs) * each, median(theirs) / median(own));
}

void memory() {
    constexpr std::size_t kConnections = 10'000;
    const std::string frame = frame_of(std::string(200, 'a'), ws::Opcode::text);
    const auto used = [] { return mallinfo2().uordblks; };
    const auto before = used();
    std::vector<std::unique_ptr<ws::FrameReader>> own;
    for (std::size_t i = 0; i < kConnections; ++i) {
        own.push_back(std::make_unique<ws::FrameReader>(kMost));
        std::string bytes = frame;
        check(read_own(*own.back(), bytes) == 1, "no message");
    }
    const auto middle = used();
    std::vector<std::unique_ptr<Wslay>> theirs;
    for (std::size_t i = 0; i < kConnections; ++i) {
        theirs.push_back(std::make_unique<Wslay>());
        check(theirs.back()->read(frame) == 1, "no message");
    }
    std::printf("memory of an idle connection's reader: own %zu bytes, wslay %zu\n",
                (middle - before) / kConnections, (used() - middle) / kConnections);
}

wire::Started started() {
    wire::Started out;
    out.generation = 12;
    for (std::int32_t rank = 0; rank < 8; ++rank) {
        wire::StartedRank one;
        one.rank = 4'096 + rank;
        one.pid = 1'234'567 + rank;
        out.ranks.push_back(one);
    }
    return out;
}

// STARTED as decode_agent() gives it; numbers of 32 bits are checked to be some, as there.
bool simdjson_started(simdjson::ondemand::parser& parser, const simdjson::padded_string& text,
                      wire::AgentMessage& message) {
    const auto is_small = [](std::int64_t number) {
        return number >= std::numeric_limits<std::int32_t>::min() &&
               number <= std::numeric_limits<std::int32_t>::max();
    };
    wire::Started out;
    simdjson::ondemand::document document;
    if (parser.iterate(text).get(document) != simdjson::SUCCESS) {
        return false;
    }
    std::string_view type;
    std::int64_t generation = 0;
    simdjson::ondemand::array ranks;
    if (document["type"].get(type) != simdjson::SUCCESS || type != "started" ||
        document["generation"].get(generation) != simdjson::SUCCESS ||
        document["ranks"].get(ranks) != simdjson::SUCCESS || !is_small(generation)) {
        return false;
    }
    out.generation = static_cast<std::int32_t>(generation);
    for (auto item : ranks) {
        simdjson::ondemand::object one;
        if (item.get(one) != simdjson::SUCCESS) {
            return false;
        }
        wire::StartedRank rank;
        for (auto field : one) {
            std::string_view key;
            if (field.unescaped_key().get(key) != simdjson::SUCCESS) {
                return false;
            }
            std::int64_t number = 0;
            if (key == "rank" && field.value().get(number) == simdjson::SUCCESS &&
                is_small(number)) {
                rank.rank = static_cast<std::int32_t>(number);
            } else if (key == "pid" && field.value().get(number) == simdjson::SUCCESS) {
                rank.pid = number;
            }
        }
        out.ranks.push_back(rank);
    }
    message = std::move(out);
    return true;
}

void messages(int rounds) {
    constexpr int kTimes = 100'000;
    const std::string text = wire::encode(wire::AgentMessage{started()});
    const simdjson::padded_string padded{text};
    simdjson::ondemand::parser parser;
    std::vector<double> own;
    std::vector<double> theirs;
    std::vector<double> copied;
    std::vector<double> dom;
    for (int round = 0; round < rounds; ++round) {
        std::size_t ranks = 0;
        own.push_back(seconds_of([&] {
            for (int i = 0; i < kTimes; ++i) {
                const auto message = wire::decode_agent(text);
                ranks += std::get<wire::Started>(*message).ranks.size();
            }
        }));
        check(ranks == std::size_t{kTimes} * 8, "flat_json lost a rank");
        ranks = 0;
        wire::AgentMessage out;
        theirs.push_back(seconds_of([&] {
            for (int i = 0; i < kTimes; ++i) {
                check(simdjson_started(parser, padded, out), "simdjson refused the message");
                ranks += std::get<wire::Started>(out).ranks.size();
            }
        }));
        // It reads beyond the end: a frame in the connection's buffer has to be copied first.
        copied.push_back(seconds_of([&] {
            for (int i = 0; i < kTimes; ++i) {
                check(simdjson_started(parser, simdjson::padded_string{text}, out), "refused");
                ranks += std::get<wire::Started>(out).ranks.size();
            }
        }));
        check(ranks == std::size_t{kTimes} * 16, "simdjson lost a rank");
        dom.push_back(seconds_of([&] {
            for (int i = 0; i < kTimes / 10; ++i) {
                ranks += parse_json(text)->at("ranks").size();
            }
        }));
    }
    const double each = 1e9 / kTimes;
    std::printf(
        "messages, STARTED of 8 ranks (%zu bytes): own %.0f ns, simdjson %.0f (%.2f x), with the "
        "copy that "
        "its padding needs %.0f (%.2f x), nlohmann without reading the fields %.0f\n",
        text.size(), median(own) * each, median(theirs) * each, median(theirs) / median(own),
        median(copied) * each, median(copied) / median(own), median(dom) * each * 10);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
    using lockstep::ws::Opcode;
    lockstep::frames(rounds, "200 bytes of text", std::string(200, 'a'), Opcode::text, 20'000);
    lockstep::frames(rounds, "16 KiB of a batch", std::string(16U << 10U, '\x7f'), Opcode::binary,
                     2'000);
    lockstep::memory();
    lockstep::messages(rounds);
    return 0;
}
