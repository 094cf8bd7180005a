#include "daemon/store/job_records.hpp"

#include "daemon/store/connection.hpp"
#include "daemon/store/event_records.hpp"
#include "daemon/store/node_records.hpp"
#include "daemon/store/notice_records.hpp"
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

JobRow row_of(const Job& job, std::string view) {
    JobRow out;
    out.id = job.id;
    out.user = job.user;
    out.name = job.spec.name;
    out.state = job.state;
    out.submitted_at = job.submitted_at;
    out.finished_at = job.finished_at;
    out.last_seq = job.last_seq;
    out.view = std::move(view);
    return out;
}

Status JobRecords::append(const Append& append) {
    LOCKSTEP_TRY(EventRecords{connection_}.add(append.events));
    const Status appended = connection_.guarded("append", [&] {
        const JobRow& row = append.row;
        const std::string state{to_string(row.state)};
        const auto upsert = connection_.statement(
            "INSERT INTO jobs (id, user, name, state, final, submitted_at, finished_at, last_seq, "
            "view) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "state = excluded.state, final = excluded.final, finished_at = excluded.finished_at, "
            "last_seq = excluded.last_seq, view = excluded.view");
        upsert->bindNoCopy(1, row.id.value);
        upsert->bindNoCopy(2, row.user);
        upsert->bindNoCopy(3, row.name);
        upsert->bindNoCopy(4, state);
        upsert->bind(5, is_final(row.state) ? 1 : 0);
        upsert->bind(6, row.submitted_at);
        upsert->bind(7, row.finished_at);
        upsert->bind(8, row.last_seq);
        upsert->bindNoCopy(9, row.view);
        upsert->exec();
        for (const auto& [name, value] : row.labels) {
            const auto label = connection_.statement(
                "INSERT OR IGNORE INTO labels (name, value, job) VALUES (?, ?, ?)");
            label->bindNoCopy(1, name);
            label->bindNoCopy(2, value);
            label->bindNoCopy(3, row.id.value);
            label->exec();
        }
    });
    LOCKSTEP_TRY(appended);
    LOCKSTEP_TRY(NodeRecords{connection_}.add(append.notes));
    return NoticeRecords{connection_}.add(append.notices);
}

Result<std::optional<SubmitDone>> JobRecords::submitted_before(const std::string& user,
                                                               const std::string& key,
                                                               const std::string& body_sha256) {
    return connection_.guarded("idempotency", [&] {
        std::optional<SubmitDone> out;
        const auto find = connection_.statement(
            "SELECT body_sha256, job FROM idempotency WHERE user = ? AND key = ?");
        find->bindNoCopy(1, user);
        find->bindNoCopy(2, key);
        if (find->executeStep()) {
            out.emplace();
            out->repeated = true;
            out->other_body = find->getColumn(0).getString() != body_sha256;
            out->id.value = find->getColumn(1).getString();
        }
        return out;
    });
}

Result<SubmitDone> JobRecords::submit(const SubmitWrite& write) {
    SubmitDone done;
    done.id = write.append.row.id;
    if (!write.idempotency_key.empty()) {
        auto before =
            submitted_before(write.append.row.user, write.idempotency_key, write.body_sha256);
        if (!before || *before) {
            return before ? Result<SubmitDone>{std::move(**before)} : fail(before.error());
        }
        const auto noted = connection_.guarded("idempotency", [&] {
            const auto insert = connection_.statement(
                "INSERT INTO idempotency (user, key, body_sha256, job) VALUES (?, ?, ?, ?)");
            insert->bindNoCopy(1, write.append.row.user);
            insert->bindNoCopy(2, write.idempotency_key);
            insert->bindNoCopy(3, write.body_sha256);
            insert->bindNoCopy(4, write.append.row.id.value);
            insert->exec();
        });
        LOCKSTEP_TRY(noted);
    }
    LOCKSTEP_TRY(append(write.append));
    for (const Append& one : write.more) {
        LOCKSTEP_TRY(append(one));
    }
    return done;
}

Result<std::vector<JobId>> JobRecords::unfinished() {
    return connection_.guarded("unfinished", [&] {
        std::vector<JobId> out;
        const auto query = connection_.statement("SELECT id FROM jobs WHERE final = 0 ORDER BY id");
        while (query->executeStep()) {
            out.push_back(JobId{query->getColumn(0).getString()});
        }
        return out;
    });
}

Result<std::optional<JobRow>> JobRecords::find(const JobId& id) {
    return connection_.guarded("job", [&]() -> std::optional<JobRow> {
        const auto query =
            connection_.statement(std::string{"SELECT "} + kJobColumns + " FROM jobs WHERE id = ?");
        query->bindNoCopy(1, id.value);
        if (!query->executeStep()) {
            return std::nullopt;
        }
        return job_row(*query);
    });
}

Result<std::vector<JobRow>> JobRecords::list(const RowQuery& query) {
    return connection_.guarded("jobs", [&] {
        const RowConditions where = conditions(query);
        // The limit is bound: every text is compiled once and kept.
        const auto statement =
            connection_.statement(std::string{"SELECT "} + kJobColumns + " FROM jobs WHERE 1" +
                                  where.sql + " ORDER BY id DESC LIMIT ?");
        bind(*statement, where, query.limit);
        std::vector<JobRow> out;
        while (statement->executeStep()) {
            out.push_back(job_row(*statement));
        }
        return out;
    });
}

Result<std::vector<SpecificationSize>> JobRecords::specification_sizes(const std::string& before,
                                                                       std::size_t limit) {
    return connection_.guarded("specifications", [&] {
        const auto query = connection_.statement(
            "SELECT id, user, (SELECT length(CAST(data AS BLOB)) FROM events WHERE job = jobs.id "
            "ORDER BY seq LIMIT 1) FROM jobs WHERE ?1 = '' OR id < ?1 ORDER BY id DESC LIMIT ?2");
        query->bindNoCopy(1, before);
        query->bind(2, static_cast<std::int64_t>(limit));
        std::vector<SpecificationSize> out;
        while (query->executeStep()) {
            out.push_back({JobId{query->getColumn(0).getString()}, query->getColumn(1).getString(),
                           query->getColumn(2).getInt64()});
        }
        return out;
    });
}

Result<JobSearchTurn> JobRecords::search(const RowQuery& query,
                                         const std::vector<std::string>& words, std::size_t rows) {
    return connection_.guarded("search", [&] {
        std::vector<std::string> wanted;
        for (const std::string& word : words) {
            wanted.push_back(in_lower_case(word));
        }
        const RowConditions where = conditions(query);
        const auto statement = connection_.statement(
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

Result<std::int64_t> JobRecords::count(JobState state) {
    return connection_.guarded("count", [&] {
        const auto query = connection_.statement("SELECT count(*) FROM jobs WHERE state = ?");
        const std::string word{to_string(state)};
        query->bindNoCopy(1, word);
        query->executeStep();
        return query->getColumn(0).getInt64();
    });
}

Result<std::vector<EndedJob>> JobRecords::ended_before(UnixMillis before, const EndedJob& after,
                                                       std::size_t limit) {
    return connection_.guarded("old jobs", [&] {
        std::vector<EndedJob> out;
        const auto find = connection_.statement(
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

Result<bool> JobRecords::snapshot_used(const std::string& snapshot) {
    return connection_.guarded("snapshot", [&] {
        const auto find =
            connection_.statement("SELECT 1 FROM labels WHERE name = ? AND value = ? LIMIT 1");
        find->bind(1, kSnapshotLabel);
        find->bindNoCopy(2, snapshot);
        return find->executeStep();
    });
}

Result<std::string> JobRecords::user_of_folder(const JobId& job, bool earlier) {
    return connection_.guarded("folder of a job", [&]() -> std::string {
        const auto find = connection_.statement(
            "SELECT job FROM labels WHERE name IN (?1, ?3) AND value = ?2 AND job != ?2 LIMIT 1");
        find->bind(1, kFolderLabel);
        find->bindNoCopy(2, job.value);
        find->bind(3, earlier ? kNamesakeLabel : kFolderLabel);
        return find->executeStep() ? find->getColumn(0).getString() : "";
    });
}

}  // namespace lockstep
