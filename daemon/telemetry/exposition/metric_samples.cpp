#include "daemon/telemetry/exposition/metric_samples.hpp"

namespace lockstep::telemetry {

void MetricSamples::add(std::string_view name, std::string_view suffix, std::string_view labels,
                        double value) {
    Sample sample;
    const std::string_view last =
        samples_.empty() ? std::string_view{} : series(samples_.size() - 1).name;
    if (last.size() == name.size() + suffix.size() && last.starts_with(name) &&
        last.ends_with(suffix)) {
        sample.name = samples_.back().name;
    } else {
        sample.name = text_.size();
        text_.append(name).append(suffix);
    }
    sample.name_bytes = static_cast<std::uint32_t>(name.size() + suffix.size());
    sample.labels = text_.size();
    sample.labels_bytes = static_cast<std::uint32_t>(labels.size());
    sample.value = value;
    text_ += labels;
    samples_.push_back(sample);
}

MetricSeries MetricSamples::series(std::size_t index) const {
    const Sample& sample = samples_[index];
    const std::string_view text = text_;
    return {text.substr(sample.name, sample.name_bytes),
            text.substr(sample.labels, sample.labels_bytes)};
}

}  // namespace lockstep::telemetry
