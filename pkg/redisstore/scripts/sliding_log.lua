-- The state is a list: first 'L' and the time of the last charge, then the time of each hit, the oldest first. Hits are
-- pushed at the end, expired ones dropped from the front by the next charge. Unlike a sorted set it needs no names for
-- hits that come together, and a tenth of the memory.
--
-- a: hits that count; size: hits in the list; expired: hits at its front that do not count; pushed, dropped: what a charge
-- has done to its end; foreign: something else is under the key.
local function sliding_log()
  -- The time of hit i of the list, from 1, or from -1 for the newest. What is no number has expired.
  local function mark(key, i)
    return tonumber(call('LINDEX', key, i)) or 0
  end

  local function newest(s, t)
    if s.pushed > 0 then
      return t
    end
    return mark(s.key, s.size - s.dropped)
  end

  local function idle(s, l, t)
    if s.a == 0 then
      return 0
    end
    return newest(s, t) + l.window - t
  end

  return {
    read = function(number)
      local key = KEYS[number]
      local s = {key = key, at = now, a = 0, size = 0, oldest = 0, expired = 0, pushed = 0, dropped = 0, empty = true,
        foreign = changed[number]}
      if s.foreign then
        return s
      end
      local front = redis.pcall('LRANGE', key, 0, 1)
      if front.err then
        s.foreign = true
      elseif front[1] then
        local at = string.sub(front[1], 1, 1) == 'L' and tonumber(string.sub(front[1], 2))
        if at and at >= 0 and at <= MOST then
          s.at, s.empty = at, false
          if front[2] then
            s.oldest, s.size = tonumber(front[2]) or 0, call('LLEN', key) - 1
          end
        else
          s.foreign = true
        end
      end
      return s
    end,
    advance = function(s, l, t)
      local expired = t - l.window
      if s.size > 0 and s.oldest <= expired then
        -- Doubling steps, then halving ones, find the last hit that has expired.
        local gone, step = 1, 1
        while gone + step <= s.size and mark(s.key, gone + step) <= expired do
          gone = gone + step
          step = step * 2
        end
        while step > 1 do
          step = step / 2
          if gone + step <= s.size and mark(s.key, gone + step) <= expired then
            gone = gone + step
          end
        end
        s.expired = gone
      end
      s.a = s.size - s.expired
    end,
    available = function(s, l)
      return l.count - s.a
    end,
    add = function(s, _, _, n)
      if n < 0 then
        if n < -s.a then
          n = -s.a
        end
        s.dropped = -n
      else
        s.pushed = n
      end
      s.a = s.a + n
      return n
    end,
    wait = function(s, l, t, cost)
      -- The hits up to and including this one, from the oldest, must expire first.
      return mark(s.key, s.expired + s.a - (l.count - cost)) + l.window - t
    end,
    idle = idle,
    write = function(number, l, s, t)
      local key = KEYS[number]
      local head = 'L' .. string.format('%.0f', t)
      if s.foreign then
        call('DEL', key)
        stored[number], changed[number], lives[number] = false, nil, nil
      end
      if s.empty then
        call('RPUSH', key, head)
      else
        -- The last one that has expired makes place for the head.
        if s.expired > 0 or s.dropped > 0 then
          call('LTRIM', key, s.expired, -1 - s.dropped)
        end
        call('LSET', key, 0, head)
      end
      if s.pushed == 1 then
        call('RPUSH', key, t)
      elseif s.pushed > 0 then
        local marks = {}
        for i = 1, s.pushed do
          marks[i] = t
        end
        for i = 1, s.pushed, 1000 do
          local last = i + 999
          if last > s.pushed then
            last = s.pushed
          end
          call('RPUSH', key, unpack(marks, i, last))
        end
      end
      s.size, s.expired, s.dropped = s.a, 0, 0
      local needed = idle(s, l, t)
      call('PEXPIRE', key, lifetime(needed))
      return needed
    end,
  }
end
