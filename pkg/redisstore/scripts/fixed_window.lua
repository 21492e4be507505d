-- a: hits in the window of the last charge; b: the end of the current window.
local function fixed_window()
  return {
    read = read,
    advance = function(s, l, t)
      local from, to = bounds(l, t)
      if s.at < from then
        s.a = 0
      end
      s.b = to
    end,
    available = function(s, l)
      return l.count - s.a
    end,
    add = function(s, _, _, n)
      if n < -s.a then
        n = -s.a
      end
      s.a = s.a + n
      return n
    end,
    wait = function(s, _, t)
      return s.b - t
    end,
    idle = function(s, _, t)
      return s.b - t
    end,
    write = function(key, l, s, t)
      write(key, l, s, t, s.b - t, 0)
      return s.b - t
    end,
  }
end
