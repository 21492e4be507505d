local makers = {fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket, envoy_window}
local algorithms = {}

local request = ARGV[2]
local limit_count, charge_count, id_lifetime, position = unpacked('<HHd', request)

local limits = {}
for i = 1, limit_count do
  local l, calendar = {}, nil
  l.algorithm, l.count, l.capacity, l.window, l.token, l.rate, calendar, position = unpacked('<BdddddB', request, position)
  if calendar == 1 then
    local e1, e2, e3, e4, e5
    e1, e2, e3, e4, e5, position = unpacked('<ddddd', request, position)
    l.edges = {e1, e2, e3, e4, e5}
  end
  local algorithm = algorithms[l.algorithm]
  if not algorithm then
    algorithm = makers[l.algorithm]()
    algorithms[l.algorithm] = algorithm
  end
  l.does = algorithm
  limits[i] = l
end

-- A key that holds no string is read as none.
local key_count = #KEYS
if key_count <= 1000 then
  stored = call('MGET', unpack(KEYS))
else
  for i = 1, key_count, 1000 do
    local last = min(i + 999, key_count)
    for j, value in ipairs(call('MGET', unpack(KEYS, i, last))) do
      stored[i + j - 1] = value
    end
  end
end

local reply, filled = {}, 0

local function answer(allowed, granted, remaining, retry, reset)
  local n = filled
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = allowed, granted, remaining, retry, reset
  filled = n + 5
end

-- Decides a hit that comes so many times by itself, and charges it unless it is only a look. Returns how often it is allowed.
local function hit(key, l, cost, times, partial, charge)
  local does = l.does
  local s = does.read(key, l)
  local t = now
  if s.at > t then
    t = s.at
  end
  does.advance(s, l, t)
  local available = does.available(s, l, t)
  local allowed, granted = times, cost * times
  if cost == 0 then
    if available < (does.overruns and 0 or 1) then -- envoyproxy/ratelimit lets a look pass at the limit itself
      allowed = 0
    end
  elseif granted > available and cost > 0 then
    allowed, granted = 0, 0
    if available > 0 then
      allowed = floor(available / cost)
      granted = partial and available or allowed * cost
    end
  end
  local reset, retry = nil, 0
  if not charge then
    granted = 0
  elseif allowed < times and cost > 0 and does.overruns and does.overruns(l) then
    does.add(s, l, t, cost * times)
    reset = does.write(key, l, s, t)
    available = available - granted
  elseif granted ~= 0 then
    granted = does.add(s, l, t, granted)
    if granted ~= 0 then
      reset = does.write(key, l, s, t)
      available = granted > 0 and available - granted or does.available(s, l, t)
      if granted < 0 and ARGV[3] then
        redis.pcall('PUBLISH', ARGV[3], KEYS[key]) -- a user who may not is no reason to fail
      end
    end
  end
  if allowed < times then
    if cost < 1 then
      cost = 1
    end
    if cost > l.capacity then
      retry = does.idle(s, l, t)
    else
      retry = does.wait(s, l, t, cost)
    end
  end
  if available < 0 then
    available = 0
  end
  if times > 1 and l.rate > 0 then
    reset = s.a
  end
  local n = filled -- what answer does: a call for each hit is what this script costs
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = allowed, granted, available, retry, reset or does.idle(s, l, t)
  filled = n + 5
  return allowed
end

local ID_HEADER, ID_RESULT = '<c16d', '<ddddd'
local ID_HEADER_SIZE, ID_RESULT_SIZE = 24, 40

-- What is remembered under an identifier's key: the mark of its hits, when the memory ends, and the results. Returns it, or
-- 'conflict' if it was used for other hits, or nil; and when the hits were decided.
local function recall(key, mark, hits)
  local record = stored[key]
  if not record or #record <= ID_HEADER_SIZE or (#record - ID_HEADER_SIZE) % ID_RESULT_SIZE ~= 0 then
    return nil
  end
  local its_mark, ends = unpacked(ID_HEADER, record)
  if not (ends > now) then
    return nil
  end
  if its_mark == mark and #record == ID_HEADER_SIZE + ID_RESULT_SIZE * hits then
    return record, ends - id_lifetime
  end
  return 'conflict', 0
end

local function remember(key, mark, first)
  local results = {pack(ID_HEADER, mark, now + id_lifetime)}
  for i = first + 1, filled, 5 do
    results[#results + 1] = pack(ID_RESULT, unpack(reply, i, i + 4))
  end
  stored[key] = table.concat(results)
  changed[key], lives[key] = true, lifetime(id_lifetime)
end

-- Decides hits together: all are charged, or none is.
local function group(keys, hit_limits, costs)
  local first, n, allowed = filled, #keys, true
  for i = 1, n do
    allowed = hit(keys[i], hit_limits[i], costs[i], 1, false, false) == 1 and allowed
  end
  if allowed then
    filled = first
    for i = 1, n do
      hit(keys[i], hit_limits[i], costs[i], 1, false, true)
    end
  end
end

for _ = 1, charge_count do
  local n, flags, times, key, limit, cost
  n, flags, times, key, limit, cost, position = unpacked('<HBHHHd', request, position)
  if n == 1 and flags < 2 then
    hit(key + 1, limits[limit + 1], cost, times, flags == 1, true)
  else
    local id_key, mark, known, decided
    if flags >= 2 then
      flags = flags - 2
      id_key, mark, position = unpacked('<Hc16', request, position)
      id_key = id_key + 1
      known, decided = recall(id_key, mark, n)
    end
    local keys, hit_limits, costs = {key + 1}, {limits[limit + 1]}, {cost}
    for i = 2, n do
      key, limit, cost, position = unpacked('<HHd', request, position)
      keys[i], hit_limits[i], costs[i] = key + 1, limits[limit + 1], cost
    end
    local first = filled
    if known == 'conflict' then
      for _ = 1, n do
        answer(-1, 0, 0, 0, 0)
      end
    elseif known then
      for i = 1, n do
        answer(unpacked(ID_RESULT, known, ID_HEADER_SIZE + 1 + ID_RESULT_SIZE * (i - 1)))
      end
    elseif n == 1 then
      hit(keys[1], hit_limits[1], costs[1], 1, flags == 1, true)
    else
      group(keys, hit_limits, costs)
    end
    if id_key then
      if not known then
        remember(id_key, mark, first)
        decided = now
      end
      filled = filled + 1
      reply[filled] = decided
    end
  end
end

-- Numbers are written as strings, each once: Redis would format them each time, which costs a quarter of a SET.
local written = {}
for i = 1, key_count do
  if changed[i] then
    local life = lives[i]
    if life then
      local text = written[life]
      if not text then
        text = string.format('%.0f', life)
        written[life] = text
      end
      call('SET', KEYS[i], stored[i], 'PX', text)
    else
      call('SETRANGE', KEYS[i], '0', stored[i])
    end
  end
end
return reply
