#include "job/trainer/checkpoint.hpp"

#include "job/base/digest.hpp"
#include "job/base/files.hpp"
#include "job/base/log.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are stored little-endian");

constexpr std::string_view kMagic = "LOCKSTEP-CHECKPOINT 1 ";
constexpr std::size_t kHashBytes = 64;
constexpr std::size_t kCheckpointBytesMax = 8ULL << 30U;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".ckpt";

void append_floats(std::string& bytes, const std::vector<float>& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

Status take_floats(std::string_view& bytes, const Json& sections, const char* name,
                   std::vector<float>& values) {
    const auto found = sections.find(name);
    if (found == sections.end() || !found->is_number_integer() || found->get<std::int64_t>() < 0) {
        return fail(Errc::corrupt, std::string{"no section "} + name);
    }
    const auto count = found->get<std::size_t>();
    if (count > bytes.size() / sizeof(float)) {
        return fail(Errc::corrupt, std::string{"section "} + name + " is cut off");
    }
    values.resize(count);
    std::memcpy(values.data(), bytes.data(), count * sizeof(float));
    bytes.remove_prefix(count * sizeof(float));
    return {};
}

// The step of "step-00000200.ckpt", or nothing.
std::optional<std::int64_t> step_of(const std::string& name) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
        return std::nullopt;
    }
    const std::string_view digits = std::string_view{name}.substr(
        kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    const bool number = !digits.empty() && std::all_of(digits.begin(), digits.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    return number ? to_int(digits) : std::nullopt;
}

using Files = std::vector<std::pair<std::int64_t, std::filesystem::path>>;

// Complete names, newest first; `leftovers` gets what an interrupted write left.
Files list(const std::filesystem::path& folder, std::vector<std::filesystem::path>& leftovers) {
    Files files;
    std::error_code error;
    for (std::filesystem::directory_iterator it{folder, error}, end; !error && it != end;
         it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (const std::optional<std::int64_t> step = step_of(name)) {
            files.emplace_back(*step, it->path());
        } else if (name.starts_with(kPrefix) && name.find(".ckpt.tmp.") != std::string::npos) {
            leftovers.push_back(it->path());
        }
    }
    std::sort(files.rbegin(), files.rend());
    return files;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
    std::array<char, 40> name{};
    std::snprintf(name.data(), name.size(), "step-%08lld.ckpt", static_cast<long long>(step));
    return name.data();
}

std::string encode_checkpoint(const Checkpoint& checkpoint) {
    Json header;
    header["step"] = checkpoint.step;
    header["epoch"] = checkpoint.epoch;
    header["consumed"] = checkpoint.consumed;
    header["ranks"] = checkpoint.ranks;
    header["config_hash"] = checkpoint.config_hash;
    header["sections"] = Json::object();
    header["sections"]["parameters"] = checkpoint.parameters.size();
    header["sections"]["buffers"] = checkpoint.buffers.size();
    header["sections"]["optimizer"] = checkpoint.optimizer.size();
    header["layout"] = checkpoint.layout;
    if (!checkpoint.config.is_null()) {
        header["config"] = checkpoint.config;
    }
    const std::string text = dump_json(header);
    std::string bytes{kMagic};
    bytes += std::to_string(text.size()) + "\n" + text;
    append_floats(bytes, checkpoint.parameters);
    append_floats(bytes, checkpoint.buffers);
    append_floats(bytes, checkpoint.optimizer);
    bytes += sha256_hex(bytes);
    return bytes;
}

Result<Checkpoint> decode_checkpoint(std::string_view bytes) {
    if (!bytes.starts_with(kMagic)) {
        return fail(Errc::corrupt, "not a checkpoint");
    }
    const std::size_t line = bytes.substr(0, kMagic.size() + 24).find('\n');
    if (line == std::string_view::npos || bytes.size() < line + 1 + kHashBytes) {
        return fail(Errc::corrupt, "truncated");
    }
    const std::string_view body = bytes.substr(0, bytes.size() - kHashBytes);
    if (sha256_hex(body) != bytes.substr(body.size())) {
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
    Checkpoint out;
    std::vector<FieldError> errors;
    ObjectReader in{*header, "", errors};
    in.integer("step", out.step, 0, INT64_MAX);
    in.integer("epoch", out.epoch, 0, INT64_MAX);
    in.integer("consumed", out.consumed, 0, INT64_MAX);
    in.integer("ranks", out.ranks, 1, INT32_MAX);
    in.string("config_hash", out.config_hash, kHashBytes);
    const Json* sections = in.raw("sections");
    if (const Json* layout = in.raw("layout"); layout != nullptr) {
        out.layout = *layout;
    }
    if (const Json* config = in.raw("config"); config != nullptr) {
        out.config = *config;
    }
    if (!errors.empty() || sections == nullptr) {
        return fail(Errc::corrupt, "header: a field is missing or wrong");
    }
    for (const auto& [name, values] : {std::pair{"parameters", &out.parameters},
                                       {"buffers", &out.buffers},
                                       {"optimizer", &out.optimizer}}) {
        if (const Status taken = take_floats(rest, *sections, name, *values); !taken) {
            return fail(taken.error());
        }
    }
    return out;
}

Result<std::filesystem::path> write_checkpoint(const std::filesystem::path& folder,
                                               const Checkpoint& checkpoint, std::size_t keep) {
    if (const Status made = make_private_directories(folder); !made) {
        return fail(made.error().in("checkpoint"));
    }
    const std::filesystem::path path = folder / checkpoint_name(checkpoint.step);
    if (const Status put = write_file_atomic(path, encode_checkpoint(checkpoint)); !put) {
        return fail(put.error().in("checkpoint"));
    }
    std::vector<std::filesystem::path> old;
    const Files files = list(folder, old);
    // Later steps than this one are from a run that was rolled back: they count as newest, and
    // stay until `keep` newer ones exist.
    for (std::size_t i = keep; i < files.size(); ++i) {
        if (files[i].second != path) {
            old.push_back(files[i].second);
        }
    }
    for (const std::filesystem::path& each : old) {
        std::error_code ignored;  // a file too many does no harm
        std::filesystem::remove(each, ignored);
    }
    return path;
}

Result<std::optional<FoundCheckpoint>> latest_checkpoint(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> leftovers;
    for (const auto& [step, path] : list(folder, leftovers)) {
        const Result<std::string> bytes = read_file(path, kCheckpointBytesMax);
        if (!bytes) {
            return fail(bytes.error().in("checkpoint"));
        }
        Result<Checkpoint> read = decode_checkpoint(*bytes);
        if (read && read->step == step) {
            return FoundCheckpoint{path, std::move(*read)};
        }
        log::warn("checkpoint passed over",
                  {{"path", path.string()},
                   {"reason", read ? "another step than its name says" : read.error().message}});
    }
    return std::nullopt;
}

}  // namespace lockstep
