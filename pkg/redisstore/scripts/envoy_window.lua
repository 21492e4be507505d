-- The fixed window of envoyproxy/ratelimit: a whole number under a key that names the window, increased by every hit, denied
-- ones too. Its replicas keep it in the same place.
--
-- a: hits in the window. In l.edges: the microseconds until the window ends, the seconds that the key is to live, and 1 if a
-- denied hit is counted.
local function envoy_window()
  return {
    overruns = function(l)
      return l.edges[3] == 1
    end,
    read = function(key, l)
      local n = tonumber(stored[key] or 0)
      if not n or not (n >= 0 and n <= MOST) then
        n = 0
      end
      state.at, state.a = now, n
      return state
    end,
    advance = function() end,
    available = function(s, l)
      return l.count - s.a
    end,
    add = function(s, _, _, n)
      if n < -s.a then
        n = -s.a
      end
      s.a = min(s.a + n, MOST)
      return n
    end,
    wait = function(_, l)
      return l.edges[1]
    end,
    idle = function(_, l)
      return l.edges[1]
    end,
    write = function(key, l, s)
      stored[key] = string.format('%.0f', s.a)
      changed[key], lives[key] = true, l.edges[2] * 1000
      return l.edges[1]
    end,
  }
end
