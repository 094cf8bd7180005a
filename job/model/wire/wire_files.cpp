// The files of an attempt; wire.hpp says what each is for.
#include "job/model/wire/wire_fields.hpp"

#include <array>
#include <cstdio>
#include <utility>

namespace lockstep::wire {
namespace {

template <class M>
Json write(const M& message) {
    FieldWriter writer;
    fields(writer, message);
    return std::move(writer.json);
}

template <class M>
Json list_of(const std::vector<M>& list) {
    Json out = Json::array();
    for (const M& item : list) {
        out.push_back(write(item));
    }
    return out;
}

template <class M>
Result<M> decode_file(std::string_view text) {
    const auto json = parse_json(text);
    LOCKSTEP_TRY(json);
    return take<M>(*json);
}

std::string numbered(const char* format, std::int32_t number) {
    std::array<char, 64> text{};
    const int size = std::snprintf(text.data(), text.size(), format, number);
    return std::string(text.data(), static_cast<std::size_t>(size));
}

}  // namespace

std::string encode_attempt_file(const AttemptFile& file) {
    return dump_json_pretty(write(file)) + "\n";
}
Result<AttemptFile> decode_attempt_file(std::string_view text) {
    return decode_file<AttemptFile>(text);
}
std::string encode_claim_file(const ClaimFile& file) {
    return dump_json(write(file)) + "\n";
}
Result<ClaimFile> decode_claim_file(std::string_view text) {
    return decode_file<ClaimFile>(text);
}

std::string encode_gave_up_file(const GaveUpFile& file) {
    return dump_json(write(file)) + "\n";
}
Result<GaveUpFile> decode_gave_up_file(std::string_view text) {
    return decode_file<GaveUpFile>(text);
}

std::string encode_result_file(const ResultFile& file) {
    Json json = write(file);
    json["exits"] = list_of(file.exits);
    json["faults"] = list_of(file.faults);
    return dump_json(json) + "\n";
}
Result<ResultFile> decode_result_file(std::string_view text) {
    const auto json = parse_json(text);
    LOCKSTEP_TRY(json);
    auto file = take<ResultFile>(*json);
    if (!file) {
        return file;
    }
    LOCKSTEP_TRY(take_list(*json, "exits", file->exits));
    LOCKSTEP_TRY(take_list(*json, "faults", file->faults));
    return file;
}

std::string claim_file_name(std::int32_t node_rank, const std::string& allocation) {
    const std::string name = numbered("node-%05d", node_rank);
    return allocation.empty() ? name + ".claim" : name + "-" + allocation + ".claim";
}
std::string result_file_name(std::int32_t node_rank) {
    return numbered("node-%05d.result.json", node_rank);
}
std::string gave_up_file_name(std::int32_t node_rank) {
    return numbered("node-%05d.gave-up.json", node_rank);
}
std::string rank_log_name(std::int32_t rank) {
    return numbered("rank-%05d.log", rank);
}

}  // namespace lockstep::wire
