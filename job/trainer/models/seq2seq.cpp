// An encoder and a decoder with attention, byte by byte: a GRU reads the source (Cho et al.:
// Learning phrase representations using RNN encoder-decoder, 2014), a second one that starts where
// the first ended reads the target so far, and each of its steps looks back at all of the source
// (Luong et al.: Effective approaches to attention-based neural machine translation, 2015,
// "general" score). While it learns, the decoder reads the true target (teacher forcing). Four
// layers, so that two stages of a pipeline are the encoder and the decoder.
#include "job/trainer/device.hpp"
#include "job/trainer/gru.hpp"
#include "job/trainer/layers.hpp"
#include "job/trainer/models/models.hpp"
#include "job/trainer/products.hpp"

#include <limits>
#include <tuple>

namespace lockstep {
namespace {

constexpr std::int64_t kSeqWidth = 128;  // of embeddings and states

// What goes from layer to layer in front of the decoder, as [batch, …] floats side by side: a state
// for each byte of the source, and all bytes, which floats hold exactly.
struct SeqParts {
    std::int64_t source;  // bytes
    std::int64_t target;

    at::Tensor join(const at::Tensor& states, const at::Tensor& bytes) const {
        return at::cat({states.to(at::kFloat).flatten(1), bytes.to(at::kFloat)}, 1);
    }
    at::Tensor states(const at::Tensor& x) const {
        return x.narrow(1, 0, source * kSeqWidth).view({x.size(0), source, kSeqWidth});
    }
    at::Tensor bytes(const at::Tensor& x) const {
        return x.narrow(1, source * kSeqWidth, source + target);
    }
    // [batch, source]: which bytes of the source are there; those that are not come last.
    at::Tensor is_there(const at::Tensor& x) const { return bytes(x).narrow(1, 0, source).ne(0.0); }
};

// PyTorch's GRU, whose weights it can have: three gates, one below the other.
std::vector<ParameterSpec> gru_parameters(const std::string& name) {
    return {{name + ".input.kernel", {3 * kSeqWidth, kSeqWidth}, Start::glorot},
            {name + ".state.kernel", {3 * kSeqWidth, kSeqWidth}, Start::glorot},
            {name + ".input.bias", {3 * kSeqWidth}},
            {name + ".state.bias", {3 * kSeqWidth}}};
}

// x: [batch, length, width] → the state after each place. The reset gate is applied behind the
// product, as in PyTorch. In bfloat16, and without oneDNN, it is written out: dense() is fast in
// any build. Sums stay in 32 bits, else their errors would add up from place to place.
at::Tensor gru(const at::Tensor& x, at::Tensor state, std::span<const at::Tensor> p) {
    const at::Tensor inputs = dense_rows(x, p[0], p[2]).to(at::kFloat);
    if (own_loops(x) && products_are_onednn() && !autocasts_on_cpu()) {
        return gru_states(inputs, state, p[1], p[3]);
    }
    std::vector<at::Tensor> states;
    for (std::int64_t place = 0; place < x.size(1); ++place) {
        if (x.is_cuda()) {  // the same in one kernel
            const at::Tensor old = dense(state, p[1], p[3]).to(at::kFloat);
            state = std::get<0>(at::_thnn_fused_gru_cell(inputs.select(1, place), old, state));
            states.push_back(state);
            continue;
        }
        const std::vector<at::Tensor> in = inputs.select(1, place).chunk(3, 1);
        const std::vector<at::Tensor> old = dense(state, p[1], p[3]).to(at::kFloat).chunk(3, 1);
        const at::Tensor reset = at::sigmoid(in[0] + old[0]);
        const at::Tensor keep = at::sigmoid(in[1] + old[1]);
        const at::Tensor fresh = at::tanh(in[2] + reset * old[2]);
        state = fresh + keep * (state - fresh);
        states.push_back(state);
    }
    return at::stack(states, 1);
}

Layer source_layer(SeqParts parts, std::int64_t words) {
    Layer layer;
    layer.parameters = {{"source.words", {words, kSeqWidth}, Start::glorot}};
    layer.forward = [parts](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                            const Pass&) {
        return parts.join(at::embedding(p[0], x.narrow(1, 0, parts.source)), x);
    };
    return layer;
}

Layer encoder_layer(SeqParts parts) {
    Layer layer;
    layer.parameters = gru_parameters("encoder");
    layer.forward = [parts](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                            const Pass&) {
        const at::Tensor begin = at::zeros({x.size(0), kSeqWidth}, x.options().dtype(at::kFloat));
        return parts.join(gru(parts.states(x), begin, p), parts.bytes(x));
    };
    return layer;
}

Layer decoder_layer(SeqParts parts, std::int64_t words) {
    Layer layer;
    layer.parameters = gru_parameters("decoder");
    layer.parameters.push_back({"target.words", {words, kSeqWidth}, Start::glorot});
    layer.parameters.push_back({"attention.kernel", {kSeqWidth, kSeqWidth}, Start::glorot});
    layer.parameters.push_back({"attention.bias", {kSeqWidth}});
    layer.parameters.push_back({"combine.kernel", {kSeqWidth, 2 * kSeqWidth}, Start::glorot});
    layer.parameters.push_back({"combine.bias", {kSeqWidth}});
    layer.forward = [parts](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                            const Pass&) {
        const at::Tensor source = parts.states(x);
        const at::Tensor is_there = parts.is_there(x);
        const at::Tensor ends = (is_there.sum(1) - 1).view({-1, 1, 1}).expand({-1, 1, kSeqWidth});
        const at::Tensor begin = source.gather(1, ends).squeeze(1);
        const at::Tensor target = parts.bytes(x).narrow(1, parts.source, parts.target);
        const at::Tensor read = at::embedding(p[4], target.to(at::kLong));
        const at::Tensor states = gru(read, begin, p);
        const at::Tensor asked = dense_rows(states, p[5], p[6]);
        const at::Tensor scores =
            at::matmul(asked, source.transpose(1, 2)).to(at::kFloat);  // [batch, target, source]
        const at::Tensor weights =
            at::softmax(scores.masked_fill(is_there.logical_not().unsqueeze(1),
                                           -std::numeric_limits<float>::infinity()),
                        /*dim=*/-1);
        const at::Tensor seen = at::matmul(weights, source).to(at::kFloat);
        return at::tanh(dense_rows(at::cat({seen, states}, -1), p[7], p[8]));
    };
    return layer;
}

Layer word_layer(std::int64_t words) {
    Layer layer;
    layer.parameters = {{"head.kernel", {words, kSeqWidth}, Start::glorot}, {"head.bias", {words}}};
    layer.forward = [](const at::Tensor& x, std::span<const at::Tensor> p, const at::Tensor&,
                       const Pass&) { return dense_rows(x, p[0], p[1]); };
    return layer;
}

// data/pairs.cpp: a source of context bytes, then context + 1.
SeqParts parts_of(const ModelShape& shape) {
    const std::int64_t source = shape.sample[0] / 2;
    return {source, shape.sample[0] - source};
}

}  // namespace

TextCosts seq2seq_costs(const ModelShape& shape) {
    const SeqParts parts = parts_of(shape);
    const auto source = static_cast<double>(parts.source);
    const auto target = static_cast<double>(parts.target);
    constexpr double kWidth = kSeqWidth;
    constexpr double kGru = 6.0 * kWidth * kWidth;
    const double decoder =
        kGru + 3.0 * kWidth * kWidth + static_cast<double>(shape.classes) * kWidth;
    const double scores = 2.0 * source * kWidth;
    return {shape.sample[0], 6.0 * (source * kGru + target * (decoder + scores))};
}

std::vector<Layer> seq2seq_layers(const ModelShape& shape) {
    const SeqParts parts = parts_of(shape);
    return {source_layer(parts, shape.classes), encoder_layer(parts),
            decoder_layer(parts, shape.classes), word_layer(shape.classes)};
}

}  // namespace lockstep
