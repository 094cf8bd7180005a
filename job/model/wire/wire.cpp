#include "job/model/wire/wire.hpp"

#include "job/base/limits.hpp"
#include "job/model/wire/flat_json.hpp"
#include "job/model/wire/wire_fields.hpp"

#include <array>
#include <type_traits>
#include <utility>

namespace lockstep::wire {
namespace {

constexpr std::array<const char*, 23> kAgentTypes{
    "hello",      "join",       "ready",  "started", "exited",   "fault",
    "checkpoint", "done",       "keys",   "beat",    "examined", "gpu_xid",
    "evidence",   "table",      "bye",    "checked", "probed",   "pair_tested",
    "can_save",   "save_asked", "warned", "desync",  "profiled"};
constexpr std::array<const char*, 17> kDaemonTypes{
    "welcome", "world", "start", "abort", "stop",      "ack",      "key_reply", "fenced", "save",
    "examine", "table", "drain", "probe", "pair_test", "ask_save", "clock",     "profile"};

template <class Variant, std::size_t I = 0, std::size_t N>
Result<Variant> take_variant(const Json& json, std::string_view type,
                             const std::array<const char*, N>& types) {
    static_assert(N == std::variant_size_v<Variant>);
    if constexpr (I == N) {
        return fail(Errc::invalid, "unknown message type");
    } else {
        if (type != types[I]) {
            return take_variant<Variant, I + 1>(json, type, types);
        }
        using M = std::variant_alternative_t<I, Variant>;
        auto message = take<M>(json);
        if (!message) {
            return fail(message.error().in(type));
        }
        if constexpr (kHasRanks<M>) {
            if (auto list = take_list(json, "ranks", message->ranks); !list) {
                return fail(list.error().in(type));
            }
        }
        return Variant{std::move(*message)};
    }
}

// What most messages are: read without a document. False: take_variant() is to look at it.
template <class M>
bool take_flat(const FlatObject& from, M& message) {
    FlatTaker taker{from};
    fields(taker, message);
    if constexpr (std::is_same_v<M, Started>) {
        const FlatObject::Value* list = from.find("ranks");
        const auto take_one = [&message](const FlatObject& item) {
            FlatTaker of_rank{item};
            fields(of_rank, message.ranks.emplace_back());
            return of_rank.good() &&
                   message.ranks.size() <= static_cast<std::size_t>(limits::kRanks);
        };
        return taker.good() && list != nullptr && list->kind == FlatObject::Kind::list &&
               FlatObject::objects_of(list->text, take_one);
    } else {
        return taker.good() && !kHasRanks<M>;
    }
}

template <class Variant, std::size_t I = 0, std::size_t N>
bool take_flat_variant(const FlatObject& from, std::string_view type,
                       const std::array<const char*, N>& types, Variant& out) {
    if constexpr (I == N) {
        return false;
    } else {
        return type == types[I] ? take_flat(from, out.template emplace<I>())
                                : take_flat_variant<Variant, I + 1>(from, type, types, out);
    }
}

template <class Variant, std::size_t N>
Result<Variant> decode(std::string_view text, const std::array<const char*, N>& types) {
    FlatObject flat;
    if (flat.read(text)) {
        const FlatObject::Value* type = flat.find("type");
        Result<Variant> out{};
        if (type != nullptr && type->kind == FlatObject::Kind::text &&
            take_flat_variant(flat, type->text, types, *out)) {
            return out;
        }
    }
    const auto json = parse_json(text);
    LOCKSTEP_TRY(json);
    if (!json->is_object() || !json->contains("type") || !(*json)["type"].is_string()) {
        return fail(Errc::invalid, "a message must be an object with a type");
    }
    return take_variant<Variant>(*json, (*json)["type"].template get_ref<const std::string&>(),
                                 types);
}

template <class M>
void write_list(TextWriter& writer, const char* key, const std::vector<M>& list);

template <class M>
void write_lists(TextWriter& writer, const M& m) {
    if constexpr (kHasRanks<M>) {
        write_list(writer, "ranks", m.ranks);
    } else if constexpr (std::is_same_v<M, RankEvidence>) {
        write_list(writer, "files", m.files);
        write_list(writer, "missing", m.missing);
    }
}

template <class M>
void write_list(TextWriter& writer, const char* key, const std::vector<M>& list) {
    writer.key(key);
    writer.text += '[';
    for (const M& item : list) {
        writer.text += &item == &list.front() ? "{" : ",{";
        fields(writer, item);
        write_lists(writer, item);
        writer.text += '}';
    }
    writer.text += ']';
}

// Puts one text where a document would be.
class WelcomeWriter : public TextWriter {
  public:
    explicit WelcomeWriter(std::string_view document) : document_(document) {}
    using TextWriter::operator();
    void operator()(const char* name, const Json&) {
        key(name);
        text += document_;
    }

  private:
    std::string_view document_;
};

template <class Variant, std::size_t N>
std::string encode_variant(const Variant& message, const std::array<const char*, N>& types) {
    TextWriter writer;
    writer("type", types[message.index()]);
    std::visit(
        [&writer](const auto& m) {
            fields(writer, m);
            write_lists(writer, m);
        },
        message);
    writer.text += '}';
    return std::move(writer.text);
}

}  // namespace

std::string encode(const AgentMessage& message) {
    return encode_variant(message, kAgentTypes);
}
std::string encode(const DaemonMessage& message) {
    return encode_variant(message, kDaemonTypes);
}
std::string encode_welcome(const Welcome& message, std::string_view spec) {
    WelcomeWriter writer{spec};
    writer("type", kDaemonTypes[0]);
    fields(writer, message);
    writer.text += '}';
    return std::move(writer.text);
}
Result<AgentMessage> decode_agent(std::string_view text) {
    return decode<AgentMessage>(text, kAgentTypes);
}
Result<DaemonMessage> decode_daemon(std::string_view text) {
    return decode<DaemonMessage>(text, kDaemonTypes);
}

}  // namespace lockstep::wire
