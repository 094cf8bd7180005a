// A table of numbers: a row on each line, columns between commas or, if the first line has none,
// between blanks; a first line of names or none. The last column is what a model is asked for.
// Every tenth row is for the test. Columns of a batch have the mean 0 and the deviation 1 over the
// training rows, also the last one: rates and losses then do not depend on units.
#include "job/base/files.hpp"
#include "job/base/text.hpp"
#include "job/trainer/dataset.hpp"
#include "job/trainer/trainer_limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kRowsForATest = 10;
constexpr std::string_view kBlanks = " \t\r";

std::string_view stripped(std::string_view cell) {
    const std::size_t begin = std::min(cell.find_first_not_of(kBlanks), cell.size());
    cell.remove_prefix(begin);
    cell = cell.substr(0, cell.find_last_not_of(kBlanks) + 1);
    const bool quoted = cell.size() >= 2 && cell.front() == '"' && cell.back() == '"';
    return quoted ? cell.substr(1, cell.size() - 2) : cell;
}

std::vector<std::string_view> cells_of(std::string_view line, bool commas) {
    std::vector<std::string_view> out;
    if (commas) {
        for (std::size_t end = line.find(','); end != std::string_view::npos;
             end = line.find(',')) {
            out.push_back(stripped(line.substr(0, end)));
            line.remove_prefix(end + 1);
        }
        out.push_back(stripped(line));
        return out;
    }
    while (true) {
        line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
        if (line.empty()) {
            return out;
        }
        const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
        out.push_back(stripped(line.substr(0, end)));
        line.remove_prefix(end);
    }
}

std::optional<double> number_in(std::string_view cell) {
    const std::optional<double> value = to_double(cell);
    return value && std::isfinite(*value) ? value : std::nullopt;
}

struct Rows {
    std::vector<std::string> names;
    bool named = false;          // by the first line
    std::vector<double> values;  // row after row

    std::size_t columns() const { return names.size(); }
    std::size_t count() const { return values.size() / names.size(); }
};

// The columns, from the first line: their names, or their numbers if it has numbers.
Result<Rows> first_line(const std::vector<std::string_view>& cells) {
    if (cells.size() < 2 || cells.size() > limits::kTableColumns) {
        return fail(Errc::invalid, "has " + std::to_string(cells.size()) +
                                       " columns, must be 2 to " +
                                       std::to_string(limits::kTableColumns));
    }
    Rows out;
    out.named = std::none_of(cells.begin(), cells.end(),
                             [](std::string_view cell) { return number_in(cell).has_value(); });
    for (std::size_t i = 0; i < cells.size(); ++i) {
        out.names.push_back(out.named ? printable(cells[i]) : std::to_string(i + 1));
    }
    return out;
}

Result<Rows> parse_rows(std::string_view text) {
    Rows out;
    bool commas = false;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const auto wrong = [&](const std::string& what) {
            return fail(Errc::invalid, "line " + std::to_string(number) + " " + what);
        };
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(kBlanks) == std::string_view::npos) {
            continue;
        }
        const bool first = out.names.empty();
        commas = first ? line.find(',') != std::string_view::npos : commas;
        const std::vector<std::string_view> cells = cells_of(line, commas);
        if (first) {
            Result<Rows> begun = first_line(cells);
            if (!begun) {
                return wrong(begun.error().message);
            }
            out = std::move(*begun);
            if (out.named) {
                continue;
            }
        }
        if (cells.size() != out.columns()) {
            return wrong("has " + std::to_string(cells.size()) + " columns, the first one has " +
                         std::to_string(out.columns()));
        }
        for (std::size_t column = 0; column < cells.size(); ++column) {
            const std::string_view cell = cells[column];
            const std::optional<double> value = number_in(cell);
            if (!value) {
                constexpr std::size_t kShown = 40;
                return wrong("column " + std::to_string(column + 1) + ": \"" +
                             printable(cell.substr(0, kShown)) + "\" is no number");
            }
            out.values.push_back(*value);
        }
    }
    return out;
}

bool is_test(std::size_t row) {
    return row % kRowsForATest == kRowsForATest - 1;
}

// Means and deviations over the training rows. A column that is always the same has deviation 1.
std::vector<TableColumn> columns_of(const Rows& rows) {
    std::vector<TableColumn> out;
    for (std::size_t column = 0; column < rows.columns(); ++column) {
        const auto mean_of = [&](auto&& function) {
            double sum = 0.0;
            double count = 0.0;
            for (std::size_t row = 0; row < rows.count(); ++row) {
                if (!is_test(row)) {
                    sum += function(rows.values[row * rows.columns() + column]);
                    count += 1.0;
                }
            }
            return sum / count;
        };
        TableColumn one;
        one.name = rows.names[column];
        one.mean = mean_of([](double value) { return value; });
        // Not by the deviation: that of nine times 0.1 is 1e-17, as their mean is not quite 0.1.
        double least = std::numeric_limits<double>::infinity();
        double most = -least;
        one.deviation = std::sqrt(mean_of([&](double value) {
            least = std::min(least, value);
            most = std::max(most, value);
            return (value - one.mean) * (value - one.mean);
        }));
        if (least == most) {
            one.mean = least;
            one.deviation = 1.0;
        }
        out.push_back(std::move(one));
    }
    return out;
}

SampleSet samples_of(const Rows& rows, const std::vector<TableColumn>& columns, bool test) {
    std::vector<std::uint8_t> bytes;
    SampleSet set;
    for (std::size_t row = 0; row < rows.count(); ++row) {
        if (is_test(row) != test) {
            continue;
        }
        ++set.count;
        for (std::size_t column = 0; column < columns.size(); ++column) {
            const double value = rows.values[row * columns.size() + column];
            const auto scaled =
                static_cast<float>((value - columns[column].mean) / columns[column].deviation);
            const std::size_t at = bytes.size();
            bytes.resize(at + sizeof scaled);
            std::memcpy(bytes.data() + at, &scaled, sizeof scaled);
        }
    }
    const auto shared = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
    const std::size_t features = columns.size() - 1;
    set.input.type = set.target.type = ColumnType::number;
    set.input.shape = {static_cast<std::int64_t>(features)};
    set.input.bytes = set.target.bytes = shared;
    set.input.stride = set.target.stride = columns.size() * sizeof(float);
    set.target.offset = features * sizeof(float);
    return set;
}

}  // namespace

Result<Dataset> load_table(const TrainConfig& config) {
    const Result<std::string> read = read_file(config.dataset_path, limits::kTableFileBytes);
    LOCKSTEP_TRY(read);
    const auto wrong = [&](const std::string& what) {
        return fail(Errc::invalid, config.dataset_path + ": " + what);
    };
    if (!read->empty() && read->back() != '\n') {
        return wrong("the last line has no end: the file is cut off");
    }
    const Result<Rows> rows = parse_rows(*read);
    if (!rows) {
        return wrong(rows.error().message);
    }
    const std::size_t count = rows->names.empty() ? 0 : rows->count();
    if (count < kRowsForATest) {
        return wrong(std::to_string(count) + " rows, must be at least 10");
    }
    Dataset data;
    data.classes = 1;
    data.columns = columns_of(*rows);
    for (std::size_t column = 0; column < data.columns.size(); ++column) {
        if (!std::isfinite(data.columns[column].deviation)) {
            return wrong("column " + std::to_string(column + 1) +
                         ": its numbers are too large to be scaled");
        }
    }
    data.train = samples_of(*rows, data.columns, /*test=*/false);
    data.test = samples_of(*rows, data.columns, /*test=*/true);
    return data;
}

}  // namespace lockstep
