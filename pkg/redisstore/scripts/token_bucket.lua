-- a: parts used; unit: parts of one token.
local function token_bucket()
  local function idle(s, l)
    if s.a == 0 then
      return 0
    end
    return ceil(s.a / l.rate)
  end

  return {
    read = read,
    advance = function(s, l, t)
      local token = l.token
      if s.unit ~= token then
        -- Counted in other parts, because the limit was another: what was used is rounded up to whole tokens.
        local used = s.a
        if s.unit > 1 then
          used = ceil(used / s.unit)
        end
        if used > l.capacity then
          used = l.capacity
        end
        s.a, s.unit = used * token, token
      end
      local most = l.capacity * token
      if s.a > most then
        s.a = most
      end
      local elapsed = t - s.at
      -- Compared first, so that no product is above 2^53.
      if s.a == 0 or elapsed >= ceil(s.a / l.rate) then
        s.a = 0
      else
        s.a = s.a - elapsed * l.rate
      end
    end,
    available = function(s, l)
      return floor((l.capacity * s.unit - s.a) / s.unit)
    end,
    add = function(s, _, _, n)
      local used = ceil(s.a / s.unit)
      if n <= -used then
        s.a = 0
        return -used
      end
      s.a = s.a + n * s.unit
      return n
    end,
    wait = function(s, l, _, cost)
      return ceil((s.a - (l.capacity - cost) * s.unit) / l.rate)
    end,
    idle = idle,
    write = function(key, l, s, t)
      -- A bucket in use is needed longer with every charge: some spare time saves setting the time to live each time.
      local needed = ceil(s.a / l.rate)
      local spare = needed
      if spare > MINUTE then
        spare = MINUTE
      end
      write(key, l, s, t, needed, spare)
      return needed
    end,
  }
end
