#include "job/trainer/checkpoint_bytes.hpp"

#include "job/base/digest.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are stored little-endian");

constexpr std::string_view kMagic = "LOCKSTEP-CHECKPOINT 1 ";
constexpr std::size_t kHashBytes = 64;
constexpr std::array<const char*, 3> kSections{"parameters", "buffers", "optimizer"};

std::size_t size_of(const SectionSizes& sizes, Section section) {
    return std::array{sizes.parameters, sizes.buffers,
                      sizes.optimizer}[static_cast<std::size_t>(section)];
}

bool is_whole(const std::vector<CheckpointSlice>& slices, const SectionSizes& sizes) {
    if (slices.size() != kSections.size()) {
        return false;
    }
    for (std::size_t i = 0; i < kSections.size(); ++i) {
        const CheckpointSlice& slice = slices[i];
        if (slice.section != static_cast<Section>(i) || slice.offset != 0 ||
            slice.floats().size() != size_of(sizes, slice.section)) {
            return false;
        }
    }
    return true;
}

Json header_of(const CheckpointFile& file, const std::vector<CheckpointSlice>& written) {
    const CheckpointHead& head = file.head;
    Json header;
    header["step"] = head.step;
    header["epoch"] = head.epoch;
    header["consumed"] = head.consumed;
    header["ranks"] = head.ranks;
    header["config_hash"] = head.config_hash;
    if (head.batch_size > 0) {
        header["batch_size"] = head.batch_size;
    }
    if (head.loss_scale != LossScale{}) {
        header["loss_scale"] = {{"scale", head.loss_scale.scale},
                                {"good", head.loss_scale.good},
                                {"skipped", head.loss_scale.skipped}};
    }
    if (head.optimizer_steps >= 0) {
        header["optimizer_steps"] = head.optimizer_steps;
    }
    header["sections"] = {{"parameters", file.sizes.parameters},
                          {"buffers", file.sizes.buffers},
                          {"optimizer", file.sizes.optimizer}};
    if (!is_whole(written, file.sizes)) {
        Json slices = Json::array();
        for (const CheckpointSlice& slice : written) {
            slices.push_back(
                {static_cast<int>(slice.section), slice.offset, slice.floats().size()});
        }
        header["slices"] = std::move(slices);
    }
    if (!file.parts.empty()) {
        Json parts = Json::array();
        for (const PartFile& part : file.parts) {
            parts.push_back({{"name", part.name}, {"sha256", part.sha256}});
        }
        header["parts"] = std::move(parts);
    }
    header["layout"] = head.layout;
    if (!head.config.is_null()) {
        header["config"] = head.config;
    }
    return header;
}

void read_loss_scale(const Json* json, LossScale& out, std::vector<FieldError>& errors) {
    if (json == nullptr) {
        return;
    }
    ObjectReader in{*json, "/loss_scale", errors};
    in.number("scale", out.scale, 1.0, LossScaler::kScaleMax);
    in.integer("good", out.good, 0, INT64_MAX);
    in.integer("skipped", out.skipped, 0, INT64_MAX);
}

void read_parts(const Json* json, std::vector<PartFile>& out, std::vector<FieldError>& errors) {
    if (json == nullptr) {
        return;
    }
    if (!json->is_array() || json->size() > static_cast<std::size_t>(limits::kRanks)) {
        errors.push_back({"/parts", "must be an array"});
        return;
    }
    for (const Json& each : *json) {
        PartFile part;
        ObjectReader in{each, "/parts", errors};
        in.string("name", part.name, 255);
        in.string("sha256", part.sha256, kHashBytes);
        out.push_back(std::move(part));
    }
}

// [[section, offset, count], …], without their floats.
struct SlicePlace {
    Section section;
    std::size_t offset;
    std::size_t count;
};

Result<std::vector<SlicePlace>> slice_places(const Json* slices, const SectionSizes& sizes) {
    std::vector<SlicePlace> out;
    if (slices == nullptr) {
        for (std::size_t i = 0; i < kSections.size(); ++i) {
            const auto section = static_cast<Section>(i);
            out.push_back({section, 0, size_of(sizes, section)});
        }
        return out;
    }
    const auto is_size = [](const Json& value) {
        return value.is_number_integer() && value.get<std::int64_t>() >= 0;
    };
    if (!slices->is_array() || slices->size() > limits::kCheckpointSlices) {
        return fail(Errc::corrupt, "header: slices");
    }
    for (const Json& each : *slices) {
        if (!each.is_array() || each.size() != 3 ||
            !std::all_of(each.begin(), each.end(), is_size) ||
            each[0].get<std::size_t>() >= kSections.size()) {
            return fail(Errc::corrupt, "header: slices");
        }
        out.push_back({static_cast<Section>(each[0].get<int>()), each[1].get<std::size_t>(),
                       each[2].get<std::size_t>()});
    }
    return out;
}

Status read_sections(const Json* sections, SectionSizes& out) {
    for (const auto& [name, size] : {std::pair{kSections[0], &out.parameters},
                                     {kSections[1], &out.buffers},
                                     {kSections[2], &out.optimizer}}) {
        if (sections == nullptr || !sections->is_object() || !sections->contains(name) ||
            !(*sections)[name].is_number_integer() || (*sections)[name].get<std::int64_t>() < 0) {
            return fail(Errc::corrupt, std::string{"no section "} + name);
        }
        *size = (*sections)[name].get<std::size_t>();
    }
    return {};
}

Result<std::vector<CheckpointSlice>> take_slices(std::string_view bytes,
                                                 const std::vector<SlicePlace>& places) {
    std::vector<CheckpointSlice> out;
    for (const SlicePlace& place : places) {
        if (place.count > bytes.size() / sizeof(float)) {
            return fail(Errc::corrupt, std::string{"section "} +
                                           kSections[static_cast<std::size_t>(place.section)] +
                                           " is cut off");
        }
        CheckpointSlice slice{place.section, place.offset, std::vector<float>(place.count)};
        if (place.count > 0) {
            std::memcpy(slice.values.data(), bytes.data(), place.count * sizeof(float));
        }
        bytes.remove_prefix(place.count * sizeof(float));
        out.push_back(std::move(slice));
    }
    return out;
}

}  // namespace

CheckpointFile whole_file(const Checkpoint& checkpoint) {
    CheckpointFile out;
    out.head = checkpoint;
    out.sizes = {checkpoint.parameters.size(), checkpoint.buffers.size(),
                 checkpoint.optimizer.size()};
    out.slices = {{Section::parameters, 0, checkpoint.parameters},
                  {Section::buffers, 0, checkpoint.buffers},
                  {Section::optimizer, 0, checkpoint.optimizer}};
    return out;
}

void encode_file(const CheckpointFile& file, const std::vector<CheckpointSlice>& slices,
                 std::string& bytes) {
    const std::string text = dump_json(header_of(file, slices));
    bytes = kMagic;
    bytes += std::to_string(text.size()) + "\n" + text;
    std::size_t floats = 0;
    for (const CheckpointSlice& slice : slices) {
        floats += slice.floats().size();
    }
    // With room for a header that grows by some digits. In a new string: one that has something
    // doubles when it must grow.
    constexpr std::size_t kHeaderGrowth = 4096;
    const std::size_t size = bytes.size() + floats * sizeof(float) + kHashBytes;
    if (bytes.capacity() < size) {
        std::string roomy;
        roomy.reserve(size + kHeaderGrowth);
        roomy = bytes;
        bytes.swap(roomy);
    }
    for (const CheckpointSlice& slice : slices) {
        bytes.append(reinterpret_cast<const char*>(slice.floats().data()),
                     slice.floats().size() * sizeof(float));
    }
    bytes += sha256_hex(bytes);
}

Result<CheckpointFile> decode_file(std::string_view bytes) {
    if (!bytes.starts_with(kMagic)) {
        return fail(Errc::corrupt, "not a checkpoint");
    }
    const std::size_t line = bytes.substr(0, kMagic.size() + 24).find('\n');
    if (line == std::string_view::npos || bytes.size() < line + 1 + kHashBytes) {
        return fail(Errc::corrupt, "truncated");
    }
    const std::string_view body = bytes.substr(0, bytes.size() - kHashBytes);
    CheckpointFile out;
    out.sha256 = std::string{bytes.substr(body.size())};
    if (sha256_hex(body) != out.sha256) {
        return fail(Errc::corrupt, "truncated or damaged: the checksum differs");
    }
    const auto length = to_int(bytes.substr(kMagic.size(), line - kMagic.size()));
    std::string_view rest = body.substr(line + 1);
    if (!length || *length < 0 || static_cast<std::size_t>(*length) > rest.size()) {
        return fail(Errc::corrupt, "the header's length is wrong");
    }
    const Result<Json> header = parse_json(rest.substr(0, static_cast<std::size_t>(*length)));
    if (!header) {
        return fail(Errc::corrupt, "header: " + header.error().message);
    }
    rest.remove_prefix(static_cast<std::size_t>(*length));
    std::vector<FieldError> errors;
    ObjectReader in{*header, "", errors};
    in.integer("step", out.head.step, 0, INT64_MAX);
    in.integer("epoch", out.head.epoch, 0, INT64_MAX);
    in.integer("consumed", out.head.consumed, 0, INT64_MAX);
    in.integer("ranks", out.head.ranks, 1, INT32_MAX);
    in.integer("batch_size", out.head.batch_size, 0, INT32_MAX);
    in.integer("optimizer_steps", out.head.optimizer_steps, 0, INT64_MAX);
    in.string("config_hash", out.head.config_hash, kHashBytes);
    read_loss_scale(in.raw("loss_scale"), out.head.loss_scale, errors);
    read_parts(in.raw("parts"), out.parts, errors);
    if (const Json* layout = in.raw("layout"); layout != nullptr) {
        out.head.layout = *layout;
    }
    if (const Json* config = in.raw("config"); config != nullptr) {
        out.head.config = *config;
    }
    if (!errors.empty()) {
        return fail(Errc::corrupt, "header: a field is missing or wrong");
    }
    LOCKSTEP_TRY(read_sections(in.raw("sections"), out.sizes));
    const Result<std::vector<SlicePlace>> places = slice_places(in.raw("slices"), out.sizes);
    LOCKSTEP_TRY(places);
    Result<std::vector<CheckpointSlice>> slices = take_slices(rest, *places);
    LOCKSTEP_TRY(slices);
    out.slices = std::move(*slices);
    return out;
}

Result<Checkpoint> assemble(CheckpointFile file) {
    Checkpoint out;
    static_cast<CheckpointHead&>(out) = std::move(file.head);
    std::array<std::vector<float>*, 3> sections{&out.parameters, &out.buffers, &out.optimizer};
    if (is_whole(file.slices, file.sizes)) {
        for (std::size_t i = 0; i < sections.size(); ++i) {
            *sections[i] = std::move(file.slices[i].values);
        }
        return out;
    }
    SectionSizes missing = file.sizes;
    std::array<std::size_t*, 3> left{&missing.parameters, &missing.buffers, &missing.optimizer};
    for (const CheckpointSlice& slice : file.slices) {
        const auto section = static_cast<std::size_t>(slice.section);
        const std::size_t size = size_of(file.sizes, slice.section);
        const std::size_t count = slice.values.size();
        if (slice.offset > size || count > size - slice.offset || count > *left[section]) {
            return fail(Errc::corrupt,
                        std::string{"slices of section "} + kSections[section] + " do not fit");
        }
        *left[section] -= count;
        sections[section]->resize(size);
        std::copy(slice.values.begin(), slice.values.end(),
                  sections[section]->begin() + static_cast<std::ptrdiff_t>(slice.offset));
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
        if (*left[i] != 0) {
            return fail(Errc::corrupt, std::string{"section "} + kSections[i] + " is not whole");
        }
    }
    return out;
}

std::string encode_checkpoint(const Checkpoint& checkpoint) {
    const CheckpointFile file = whole_file(checkpoint);
    std::string bytes;
    encode_file(file, file.slices, bytes);
    return bytes;
}

Result<Checkpoint> decode_checkpoint(std::string_view bytes) {
    Result<CheckpointFile> file = decode_file(bytes);
    return file ? assemble(std::move(*file)) : fail(std::move(file).error());
}

}  // namespace lockstep
