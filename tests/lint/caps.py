"""A header of lockstepd declares no cap and no duration: one that more than a single file is about is in job/base/limits.hpp,
with its reason, where whoever runs into it finds it. What a header has of the kind and is no cap is named here, with why.
"""

import re

import tree

LIMITS = "job/base/limits.hpp"
CONSTANT = re.compile(r"^\s*(?:inline|static)\s+constexpr\s+(?P<type>[^=({;]+?)\s+(?P<name>k[A-Z]\w*)\s*(?P<value>[={][^;]*);",
                      re.MULTILINE)
CAP = re.compile(r"(?:Bytes|Seconds|Patience|Timeout|Deadline|Waiting|Kept|Shown|Page|Cells|Points|Most|Max|PerJob|OfUser|OfJob"
                 r"|OfJobs|AtOnce|Samples|Rows|Ranks|Queue|Depth|Connections|Steps|Shards)$")
NO_CAPS = {
    "daemon/control/actor/job_actor.hpp": {"kStoreRetry"},          # a retry
    "daemon/control/actor/job_placement.hpp": {"kLookAtNodes"},     # a poll
    "daemon/http/base/ws_frames.hpp": {"kControlBytes"},            # RFC 6455
    "daemon/http/routes/folder_reads.hpp": {"kFirstTurn", "kLastTurn"},  # polls
    "daemon/telemetry/exposition/metric_text.hpp": {"kPieceBytes"},  # a buffer
}


def main():
    root = tree.root_argument(__doc__)
    problems, checked, used = [], 0, set()
    for name in map(str, tree.cpp_files(root)):
        if not name.startswith("daemon/") or not name.endswith(".hpp"):
            continue
        checked += 1
        code = tree.code_only((root / name).read_text(encoding="utf-8"))
        for found in CONSTANT.finditer(code):
            cap = CAP.search(found["name"]) or "chrono::" in found["type"] + found["value"]
            if not cap or found["value"].startswith(("= rank_families", "= limits::")):
                continue
            if found["name"] in NO_CAPS.get(name, ()):
                used.add((name, found["name"]))
                continue
            problems.append(f"{name}:{tree.line_of(code, found.start('name'))}: {found['name']} belongs in {LIMITS}")
    for name, known in NO_CAPS.items():
        problems += [f"{name}:1: has no {one} any more" for one in sorted(known)
                     if (root / name).is_file() and (name, one) not in used]
    tree.verdict("caps", problems, checked)


if __name__ == "__main__":
    main()
