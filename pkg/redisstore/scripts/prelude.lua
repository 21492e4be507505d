-- Decides a whole call of weir's store in one script run. The files of this folder are joined into one script, in the
-- order prelude, the algorithms, take; each algorithm does what the file of its name in pkg/algo does, step by step.
--
-- KEYS  of the hits' counters, and of the identifiers; each once
-- ARGV  1  now in microseconds since the Unix epoch; empty: the server's clock
--       2  the request, packed little-endian; keys and limits are meant by their number from 0:
--            header   u16 limits, u16 charges, f64 lifetime of identifiers in microseconds
--            limit    u8 algorithm, f64 count, f64 capacity, f64 window, f64 token, f64 rate (parts a microsecond), u8 calendar,
--                     and if calendar is 1: f64 x 5, the boundaries of the last, this, the next and the window after it
--            charge   u16 hits, u8 flags (1: partial, 2: has an identifier), u16 times, u16 key, u16 limit, f64 cost of the first
--                     hit, then if it has an identifier u16 key, 16 bytes by which its hits are recognised,
--                     then u16 key, u16 limit, f64 cost for each further hit
--          times is how often a charge of one hit comes, one right after the other; 1 for all others
--       3  the channel on which the keys are announced to which something was given back; may be left out
-- Reply a flat array of integers, five for each hit in order:
--         how often it is allowed, 0 to times, or -1 if the identifier was used for other hits,
--         granted in all, then after the last one: remaining, retry after and reset after in microseconds. If times is above 1
--         and the algorithm is a bucket, instead of reset after the parts that are used.
--       After the hits of a charge with an identifier one more: when it was decided, in microseconds; 0 in a conflict
--
-- A counter is a string: u8 algorithm, f64 at, f64 a, f64 b, f64 unit, f64 expires (see pkg/algo/state.go; expires is when
-- the key's time to live ends). Only the sliding log is a list; see there. Anything else under a key is a counter never
-- used, and is overwritten. All numbers are whole and below 2^53, which a Lua number holds exactly.

local floor, ceil, min = math.floor, math.ceil, math.min
local pack, unpacked = struct.pack, struct.unpack
local call = redis.call

local STATE, STATE_SIZE = '<Bddddd', 41
local MOST = 9007199254740992 -- 2^53
local MINUTE = 60000000

local now = tonumber(ARGV[1])
-- A clock that is given does not run at the speed of the server's, which ends keys: they get this many milliseconds more.
local slack = 60000
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  slack = 0
end

-- By the number of a key, from 1:
local stored = {}  -- the string under it, or false; with what this run has changed
local changed = {} -- true if stored differs from what the server has
local lives = {}   -- its new time to live in milliseconds; nil: the old one stands

-- The time to live, in milliseconds, of a key that is not needed after this many microseconds.
local function lifetime(micros)
  local ms = ceil(micros / 1000) + slack
  if ms < 1 then
    return 1
  end
  return ms
end

-- The window in which t lies. Outside the calendar windows that were sent, because the clocks differ by months, windows
-- have their nominal length.
local function bounds(l, t)
  local edges = l.edges
  if not edges then
    local from = t - t % l.window
    return from, from + l.window
  end
  local edge = edges[1]
  if t >= edge then
    for i = 2, 5 do
      if t < edges[i] then
        return edges[i - 1], edges[i]
      end
    end
    edge = edges[5]
  end
  local from = edge + floor((t - edge) / l.window) * l.window
  return from, from + l.window
end

-- The state of the counter that is looked at: there is one at a time.
local state = {at = 0, a = 0, b = 0, unit = 0, expires = 0}

-- Reads the state under a key, for an algorithm whose state is a string.
local function read(key, l)
  local s, value = state, stored[key]
  if value and #value == STATE_SIZE then
    local algorithm, at, a, b, unit, expires = unpacked(STATE, value)
    -- A comparison with a number that is none is false.
    if algorithm == l.algorithm and at >= 0 and at <= MOST and a >= 0 and a <= MOST and b >= 0 and b <= MOST
      and unit >= 0 and unit <= MOST and expires >= 0 then
      s.at, s.a, s.b, s.unit, s.expires = at, a, b, unit, expires
      return s
    end
  end
  s.at, s.a, s.b, s.unit, s.expires = now, 0, 0, 0, -1
  return s
end

-- Remembers a state that equals one never used after idle microseconds, to be written at the end. The time to live is
-- set again only when it would end too early; spare is how much longer than needed it may then be.
local function write(key, l, s, t, idle, spare)
  if t + idle > s.expires then
    s.expires = t + idle + spare
    lives[key] = lifetime(idle + spare)
  end
  stored[key] = pack(STATE, l.algorithm, t, s.a, s.b, s.unit, s.expires)
  changed[key] = true
end
