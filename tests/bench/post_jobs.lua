-- wrk: POST /v1/jobs, each with an Idempotency-Key of its own. Counts answers that are not 201.
local threads = 0
function setup(thread)
    thread:set("id", threads)
    threads = threads + 1
end
local body, sent
function init(args)
    body = args[1]
    sent = 0
    math.randomseed(os.time() + id)
    run = tostring(math.random(1e9))
end
function request()
    sent = sent + 1
    wrk.headers["Idempotency-Key"] = run .. "-" .. id .. "-" .. sent
    return wrk.format("POST", nil, wrk.headers, body)
end
