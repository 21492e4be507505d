local makers = {fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket}
local algorithms = {}

local request = ARGV[2]
local limit_count, hit_count, id_lifetime, position = unpacked('<HHd', request)

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
for i = 1, #KEYS, 1000 do
  local last = i + 999
  if last > #KEYS then
    last = #KEYS
  end
  local values = call('MGET', unpack(KEYS, i, last))
  for j = i, last do
    stored[KEYS[j]] = values[j - i + 1]
  end
end

local reply, filled = {}, 0

local function answer(verdict, granted, remaining, retry, reset)
  reply[filled + 1], reply[filled + 2], reply[filled + 3], reply[filled + 4], reply[filled + 5] =
    verdict, granted, remaining, retry, reset
  filled = filled + 5
end

-- Decides a hit by itself, and charges it unless it is only a look. Returns whether it is allowed.
local function hit(key, l, cost, partial, charge)
  local does = l.does
  local s = does.read(key, l)
  local t = now
  if s.at > t then
    t = s.at
  end
  does.advance(s, l, t)
  local available = does.available(s, l, t)
  local allowed, granted = true, cost
  if cost == 0 then
    allowed = available >= 1
  elseif cost > available and cost > 0 then
    allowed, granted = false, 0
    if partial and available > 0 then
      granted = available
    end
  end
  if not charge then
    granted = 0
  elseif granted ~= 0 then
    granted = does.add(s, l, t, granted)
    if granted ~= 0 then
      does.write(key, l, s, t)
      available = does.available(s, l, t)
    end
  end
  local reset, retry = does.idle(s, l, t), 0
  if not allowed then
    if cost < 1 then
      cost = 1
    end
    if cost > l.capacity then
      retry = reset
    else
      retry = does.wait(s, l, t, cost)
    end
  end
  if available < 0 then
    available = 0
  end
  answer(allowed and 1 or 0, granted, available, retry, reset)
  return allowed
end

local key, id_key = 0, hit_count -- the last ones used, as indexes of KEYS
while key < hit_count do
  local n, flags, limit, cost
  n, flags, limit, cost, position = unpacked('<HBHd', request, position)
  local id, known
  if flags >= 2 then
    flags = flags - 2
    id_key = id_key + 1
    id, position = unpacked('<c16', request, position)
    local record = stored[KEYS[id_key]]
    -- A record is the hits' mark, when it ends, and the results.
    if record and #record == 24 + 40 * math.floor((#record - 24) / 40) and #record > 24 then
      local mark, ends = unpacked('<c16d', record)
      if ends > now then
        known = mark == id and #record == 24 + 40 * n and record
        if not known then
          known = 'conflict'
        end
      end
    end
  end
  local first = filled
  if n == 1 and not known then
    hit(KEYS[key + 1], limits[limit + 1], cost, flags == 1, true)
  else
    local hit_limits, costs = {limits[limit + 1]}, {cost}
    for i = 2, n do
      limit, cost, position = unpacked('<Hd', request, position)
      hit_limits[i], costs[i] = limits[limit + 1], cost
    end
    if known == 'conflict' then
      for _ = 1, n do
        answer(2, 0, 0, 0, 0)
      end
    elseif known then
      for i = 1, n do
        answer(unpacked('<ddddd', known, 40 * i - 15))
      end
    else
      local allowed = true
      for i = 1, n do
        allowed = hit(KEYS[key + i], hit_limits[i], costs[i], false, false) and allowed
      end
      if allowed then
        filled = first
        for i = 1, n do
          hit(KEYS[key + i], hit_limits[i], costs[i], false, true)
        end
      end
    end
  end
  if id and not known then
    local results = {pack('<c16d', id, now + id_lifetime)}
    for i = first + 1, filled, 5 do
      results[#results + 1] = pack('<ddddd', unpack(reply, i, i + 4))
    end
    local record_key = KEYS[id_key]
    stored[record_key] = table.concat(results)
    changed[record_key], lives[record_key] = true, lifetime(id_lifetime)
  end
  key = key + n
end

for changed_key in pairs(changed) do
  local life = lives[changed_key]
  if life then
    call('SET', changed_key, stored[changed_key], 'PX', life)
  else
    call('SETRANGE', changed_key, 0, stored[changed_key])
  end
end
return reply
