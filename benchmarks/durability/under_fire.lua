-- What wrk sends: sentences of a file as JSON, with pauses of an exponential distribution between
-- the requests of a connection, and what it counts of the answers. Environment: SENTENCES, a file;
-- PAUSE, mean milliseconds; LIST, sentences in a request.
local texts, threads = {}, {}
local pause, many = tonumber(os.getenv("PAUSE")), tonumber(os.getenv("LIST"))

function setup(thread)
  thread:set("seed", #threads + 1)
  table.insert(threads, thread)
end

function init(args)
  math.randomseed(seed)
  for line in io.lines(os.getenv("SENTENCES")) do table.insert(texts, line) end
  ok, full, silent, other, wrong = 0, 0, 0, 0, 0
end

local function escaped(text)
  return '"' .. text:gsub('[\\"]', '\\%0') .. '"'
end

function request()
  local chosen = {}
  for i = 1, many do chosen[i] = escaped(texts[math.random(#texts)]) end
  local body = '{"q": [' .. table.concat(chosen, ",") .. '], "source": "en", "target": "fr"}'
  return wrk.format("POST", "/translate", {["Content-Type"] = "application/json"}, body)
end

function delay()
  return pause > 0 and math.floor(-pause * math.log(1 - math.random())) or 0
end

function response(status, headers, body)
  if status == 200 then
    ok = ok + 1
    if not body:find("translatedText", 1, true) then wrong = wrong + 1 end
  elseif status == 429 then
    full = full + 1
    if not headers["retry-after"] then silent = silent + 1 end
  else
    other = other + 1
  end
end

function done(summary, latency, requests)
  local sum = {}
  for _, name in ipairs({"ok", "full", "silent", "other", "wrong"}) do
    sum[name] = 0
    for _, thread in ipairs(threads) do sum[name] = sum[name] + thread:get(name) end
  end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"answered": %d, "refused": %d, "refused_without_retry_after": %d, "other": %d, ' ..
    '"wrong": %d, "socket_errors": %d, "timeouts": %d, "seconds": %.3f, ' ..
    '"p50_ms": %.1f, "p95_ms": %.1f, "p99_ms": %.1f, "max_ms": %.1f}\n',
    sum.ok, sum.full, sum.silent, sum.other, sum.wrong,
    errors.connect + errors.read + errors.write, errors.timeout, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3))
end
