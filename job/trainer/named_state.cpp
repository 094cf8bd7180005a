#include "job/trainer/named_state.hpp"

#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

namespace lockstep {
namespace {

// Moves after which nothing is left of where the averages started: 0.99^t is 0 in a float.
constexpr float kSettledMoves = 20'000.0F;

// One tensor of the state, and where it lies.
struct Place {
    std::string name;
    std::vector<std::int64_t> shape;
    FlatRange range;      // in the parameters or the buffers
    bool buffer = false;  // in which of them
    bool last = false;    // of the last layer that has parameters
    // Of norm_layer(): the number of moves, by which its averages are to be understood.
    std::optional<std::size_t> moves = std::nullopt;
    float start = 0.0F;
};

bool is_moves(const BufferSpec& buffer) {
    return buffer.name.ends_with(kMoves);
}

void add_buffers(const Layer& layer, std::size_t offset, std::vector<Place>& out) {
    std::optional<std::size_t> moves;
    std::size_t at = offset;
    for (const BufferSpec& buffer : layer.buffers) {
        moves = is_moves(buffer) ? std::optional{at} : moves;
        at += static_cast<std::size_t>(buffer.count);
    }
    at = offset;
    for (const BufferSpec& buffer : layer.buffers) {
        const auto count = static_cast<std::size_t>(buffer.count);
        if (!is_moves(buffer)) {
            out.push_back(
                {buffer.name, {buffer.count}, {at, count}, true, false, moves, buffer.start});
        }
        at += count;
    }
}

std::vector<Place> places_of(const std::vector<Layer>& network) {
    const FlatLayout layout = flat_layout(parameters_of(network));
    std::vector<Place> out;
    std::size_t next = 0;
    std::size_t buffers = 0;
    for (const Layer& layer : network) {
        const std::size_t end = next + layer.parameters.size();
        for (; next < end; ++next) {
            const bool last = end == layout.specs.size();
            out.push_back({layout.specs[next].name, layout.specs[next].shape, layout.ranges[next],
                           false, last});
        }
        add_buffers(layer, buffers, out);
        buffers += static_cast<std::size_t>(buffer_floats(layer));
    }
    return out;
}

// A place of a flat buffer as a tensor of its shape, without a copy.
at::Tensor view_at(float* flat, const Place& place) {
    float* data = flat + place.range.offset;
    if (place.shape.size() != 4) {
        return at::from_blob(data, place.shape, at::kFloat);
    }
    const auto& s = place.shape;
    return at::from_blob(data, {s[0], s[2], s[3], s[1]}, at::kFloat).permute({0, 3, 1, 2});
}

std::optional<at::ScalarType> scalar_type(const std::string& dtype) {
    if (dtype == "F32") {
        return at::kFloat;
    }
    if (dtype == "F16") {
        return at::kHalf;
    }
    if (dtype == "BF16") {
        return at::kBFloat16;
    }
    return dtype == "F64" ? std::optional{at::kDouble} : std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string out;
    for (const std::int64_t side : shape) {
        out += (out.empty() ? "" : ", ") + std::to_string(side);
    }
    return "[" + out + "]";
}

// What is wrong with the file's tensor for this place; empty: nothing.
std::string mismatch(const TensorFile& file, const Place& place) {
    const auto found = file.entries().find(place.name);
    if (found == file.entries().end()) {
        return place.name + " is missing";
    }
    if (found->second.shape != place.shape) {
        return place.name + " is " + shape_text(found->second.shape) + ", must be " +
               shape_text(place.shape);
    }
    return scalar_type(found->second.dtype)
               ? ""
               : place.name + " is of " + found->second.dtype + ", must be F32, F16, BF16 or F64";
}

}  // namespace

std::vector<NamedTensor> named_state(const std::vector<Layer>& network,
                                     std::span<const float> parameters,
                                     std::span<const float> buffers) {
    std::vector<NamedTensor> out;
    for (const Place& place : places_of(network)) {
        const std::span<const float> from = place.buffer ? buffers : parameters;
        NamedTensor tensor{place.name, place.shape, std::vector<float>(place.range.count)};
        // Only read; LibTorch has no view of what is constant.
        at::from_blob(tensor.values.data(), place.shape, at::kFloat)
            .copy_(view_at(const_cast<float*>(from.data()), place));
        if (place.moves) {
            const double left = start_weight(from[*place.moves]);
            for (float& value : tensor.values) {
                value = static_cast<float>(without_start(value, place.start, left));
            }
        }
        out.push_back(std::move(tensor));
    }
    return out;
}

Result<ImportedState> import_state(const TensorFile& file, const std::vector<Layer>& network,
                                   std::span<float> parameters, std::span<float> buffers) {
    const std::vector<Place> places = places_of(network);
    ImportedState out;
    std::vector<std::string> wrong;
    std::set<std::string> known;
    std::vector<std::pair<const Place*, std::string>> found;
    for (const Place& place : places) {
        known.insert(place.name);
        if (std::string why = mismatch(file, place); !why.empty()) {
            (place.last ? out.fresh : wrong).push_back(std::move(why));
            continue;
        }
        Result<std::string> bytes = file.read(file.entries().at(place.name));
        LOCKSTEP_TRY(bytes);
        found.emplace_back(&place, std::move(*bytes));
    }
    if (!wrong.empty()) {
        const std::string more =
            wrong.size() == 1 ? "" : ", and " + std::to_string(wrong.size() - 1) + " more";
        return fail(Errc::invalid,
                    file.path().string() + ": not the weights of this model: " + wrong[0] + more);
    }
    for (auto& [place, bytes] : found) {
        const std::string& dtype = file.entries().at(place->name).dtype;
        std::span<float> to = place->buffer ? buffers : parameters;
        view_at(to.data(), *place)
            .copy_(at::from_blob(bytes.data(), place->shape, *scalar_type(dtype)));
        if (place->moves) {
            to[*place->moves] = kSettledMoves;
        }
    }
    out.taken = found.size();
    for (const auto& [name, entry] : file.entries()) {
        // PyTorch's counter, which only an average without momentum reads.
        if (!known.contains(name) && !name.ends_with(".num_batches_tracked")) {
            out.unused.push_back(name);
        }
    }
    return out;
}

}  // namespace lockstep
