// What is read of the table of jobs: one, a page of a list, and a search.
#include "daemon/store/connection.hpp"
#include "daemon/store/database.hpp"
#include "job/base/json.hpp"
#include "job/model/job.hpp"

#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

constexpr const char* kJobColumns =
    "id, user, name, state, submitted_at, finished_at, last_seq, view";

JobRow job_row(SQLite::Statement& row) {
    JobRow out;
    out.id.value = row.getColumn(0).getString();
    out.user = row.getColumn(1).getString();
    out.name = row.getColumn(2).getString();
    out.state = parse_job_state(row.getColumn(3).getString()).value_or(JobState::failed);
    out.submitted_at = row.getColumn(4).getInt64();
    out.finished_at = row.getColumn(5).getInt64();
    out.last_seq = row.getColumn(6).getInt64();
    out.view = row.getColumn(7).getString();
    return out;
}

// " AND …" of the conditions, with a ? for each of `values`.
struct RowConditions {
    std::string sql;
    std::vector<std::string> values;
};
RowConditions conditions(const RowQuery& query) {
    RowConditions out;
    const auto where = [&](const char* condition, const std::string& value) {
        if (!value.empty()) {
            out.sql += condition;
            out.values.push_back(value);
        }
    };
    where(" AND id < ?", query.before);
    for (std::size_t i = 0; i < query.states.size(); ++i) {
        out.sql += i == 0 ? " AND state IN (?" : ", ?";
        out.values.emplace_back(to_string(query.states[i]));
    }
    out.sql += query.states.empty() ? "" : ")";
    where(" AND user = ?", query.user);
    where(" AND name = ?", query.name);
    if (!query.label_name.empty()) {
        out.sql += " AND id IN (SELECT job FROM labels WHERE name = ? AND value = ?)";
        out.values.push_back(query.label_name);
        out.values.push_back(query.label_value);
    }
    return out;
}

// Binds them and the limit, which follows.
void bind(SQLite::Statement& statement, const RowConditions& conditions, std::size_t limit) {
    int place = 0;
    for (const std::string& value : conditions.values) {
        statement.bindNoCopy(++place, value);
    }
    statement.bind(++place, static_cast<std::int64_t>(limit));
}

std::string in_lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) {
        return static_cast<char>(letter < 0x80 ? std::tolower(letter) : letter);
    });
    return text;
}

bool has_all(const std::vector<std::string>& words, const std::string& text) {
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
        return text.find(word) != std::string::npos;
    });
}

// Whether each word occurs in one of the texts. The labels are JSON: {"name":"value"}.
bool has_words(const std::vector<std::string>& words, std::string texts,
               const std::string& labels) {
    texts = in_lower_case(std::move(texts));
    if (labels.empty() || has_all(words, texts)) {
        return has_all(words, texts);
    }
    if (const auto parsed = parse_json(labels); parsed && parsed->is_object()) {
        for (const auto& [name, value] : parsed->items()) {
            const std::string text = value.is_string() ? value.get<std::string>() : "";
            texts += in_lower_case("\n" + name + ":" + text);
        }
    }
    return has_all(words, texts);
}

}  // namespace

Result<std::optional<JobRow>> Database::job(const JobId& id) {
    return connection_->guarded("job", [&]() -> std::optional<JobRow> {
        const auto query = connection_->statement(std::string{"SELECT "} + kJobColumns +
                                                  " FROM jobs WHERE id = ?");
        query->bindNoCopy(1, id.value);
        if (!query->executeStep()) {
            return std::nullopt;
        }
        return job_row(*query);
    });
}

Result<std::vector<JobRow>> Database::jobs(const RowQuery& query) {
    return connection_->guarded("jobs", [&] {
        const RowConditions where = conditions(query);
        // The limit is bound: every text is compiled once and kept.
        const auto statement =
            connection_->statement(std::string{"SELECT "} + kJobColumns + " FROM jobs WHERE 1" +
                                   where.sql + " ORDER BY id DESC LIMIT ?");
        bind(*statement, where, query.limit);
        std::vector<JobRow> out;
        while (statement->executeStep()) {
            out.push_back(job_row(*statement));
        }
        return out;
    });
}

Result<JobSearchTurn> Database::search(const RowQuery& query, const std::vector<std::string>& words,
                                       std::size_t rows) {
    return connection_->guarded("search", [&] {
        std::vector<std::string> wanted;
        for (const std::string& word : words) {
            wanted.push_back(in_lower_case(word));
        }
        const RowConditions where = conditions(query);
        const auto statement = connection_->statement(
            std::string{"SELECT "} + kJobColumns +
            ", json_extract(view, '$.framework'), json_extract(view, '$.cause.message'), "
            "json_extract(view, '$.labels')"
            " FROM jobs WHERE 1" +
            where.sql + " ORDER BY id DESC LIMIT ?");
        bind(*statement, where, rows + 1);
        JobSearchTurn out;
        while (statement->executeStep()) {
            if (out.looked_at == rows || out.found.size() == query.limit) {
                out.more = true;
                break;
            }
            ++out.looked_at;
            out.last = statement->getColumn(0).getString();
            std::string texts = out.last;
            for (const int column : {1, 2, 8, 9}) {
                texts += "\n" + statement->getColumn(column).getString();
            }
            if (has_words(wanted, std::move(texts), statement->getColumn(10).getString())) {
                out.found.push_back(job_row(*statement));
            }
        }
        return out;
    });
}

Result<std::int64_t> Database::count(JobState state) {
    return connection_->guarded("count", [&] {
        const auto query = connection_->statement("SELECT count(*) FROM jobs WHERE state = ?");
        const std::string word{to_string(state)};
        query->bindNoCopy(1, word);
        query->executeStep();
        return query->getColumn(0).getInt64();
    });
}

Result<std::vector<EndedJob>> Database::ended_before(UnixMillis before, const EndedJob& after,
                                                     std::size_t limit) {
    return connection_->guarded("old jobs", [&] {
        std::vector<EndedJob> out;
        const auto find = connection_->statement(
            "SELECT finished_at, id, user FROM jobs WHERE final = 1 AND finished_at < ?1 AND "
            "(finished_at, id) > (?2, ?3) AND id NOT IN (SELECT job FROM labels WHERE name = "
            "'keep') ORDER BY finished_at, id LIMIT ?4");
        find->bind(1, before);
        find->bind(2, after.finished_at);
        find->bindNoCopy(3, after.job.value);
        find->bind(4, static_cast<std::int64_t>(limit));
        while (find->executeStep()) {
            out.push_back({find->getColumn(0).getInt64(), JobId{find->getColumn(1).getString()},
                           find->getColumn(2).getString()});
        }
        return out;
    });
}

Result<bool> Database::snapshot_used(const std::string& snapshot) {
    return connection_->guarded("snapshot", [&] {
        const auto find =
            connection_->statement("SELECT 1 FROM labels WHERE name = ? AND value = ? LIMIT 1");
        find->bind(1, kSnapshotLabel);
        find->bindNoCopy(2, snapshot);
        return find->executeStep();
    });
}

Result<std::string> Database::user_of_folder(const JobId& job, bool earlier) {
    return connection_->guarded("folder of a job", [&]() -> std::string {
        const auto find = connection_->statement(
            "SELECT job FROM labels WHERE name IN (?1, ?3) AND value = ?2 AND job != ?2 LIMIT 1");
        find->bind(1, kFolderLabel);
        find->bindNoCopy(2, job.value);
        find->bind(3, earlier ? kNamesakeLabel : kFolderLabel);
        return find->executeStep() ? find->getColumn(0).getString() : "";
    });
}

}  // namespace lockstep
