-- a: hits in the window of the last charge; b: hits in the one before; unit: length of a window.
local function sliding_window()
  -- What hits of the window before count for when left of it is still within the last window. The order of the operations
  -- is that of pkg/algo: floating point depends on it.
  local function share(hits, left, window)
    return ceil(hits * left / window)
  end

  -- The largest left, up to window, for which share(hits, left, window) <= room.
  local function longest(hits, room, window)
    if hits <= room then
      return window
    end
    local left = floor(room * window / hits)
    if share(hits, left, window) > room then
      return left - 1
    end
    if share(hits, left + 1, window) <= room then
      return left + 1
    end
    return left
  end

  local function idle(s, l, t)
    local from, to = bounds(l, t)
    if s.a > 0 then
      return to - t + to - from
    elseif s.b > 0 then
      return to - t
    end
    return 0
  end

  return {
    read = read,
    advance = function(s, l, t)
      if s.unit ~= l.window then
        -- Counted in windows of another length: all of it is taken as having come with the last charge.
        s.a, s.b, s.unit = s.a + s.b, 0, l.window
      end
      local from = bounds(l, t)
      if s.at >= from then
        return
      end
      if s.at >= from - l.window then
        s.a, s.b = 0, s.a
      else
        s.a, s.b = 0, 0
      end
    end,
    available = function(s, l, t)
      local from, to = bounds(l, t)
      return l.count - s.a - share(s.b, to - t, to - from)
    end,
    add = function(s, _, _, n)
      if n < -s.a - s.b then
        n = -s.a - s.b
      end
      s.a = s.a + n
      if s.a < 0 then
        s.a, s.b = 0, s.b + s.a
      end
      return n
    end,
    wait = function(s, l, t, cost)
      local from, to = bounds(l, t)
      local window = to - from
      local room = l.count - cost - s.a
      if room >= 0 then
        return to - t - longest(s.b, room, window)
      end
      -- Too many in this window by itself: in the next one they are the hits of the window before.
      return to - t + window - longest(s.a, l.count - cost, window)
    end,
    idle = idle,
    write = function(key, l, s, t)
      local needed = idle(s, l, t)
      write(key, l, s, t, needed, 0)
      return needed
    end,
  }
end
