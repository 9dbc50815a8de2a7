-- The loop: reads each key, decides its charges, and writes it once if they changed it.

--@ if text
-- The text of each key: false if it is absent, or of another type.
local texts = redis.call('MGET', unpack(KEYS))
--@ end
-- The place of the last key that is done.
local last = 0

while last < #KEYS do
  -- The next run: keys `first` to `last` have equal charges, in this many segments.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    -- The state of a key. `$exists` is nil if there is none.
    local key = KEYS[k]
    local $state
    -- Write it? Empty it first? The error of its charges; its text, if that is a plain number;
    -- when its state is equivalent to no state; the ends of its block and its pause; its birth:
    -- the instant of its last reset.
    local changed, wiped, why, number, expires_at, blocked, paused, birth
    --@ if text
    -- Its text, and the one to store.
    local text, value = texts[k], nil
    --@ end
    -- All keys of a run read the same segments.
    local start = n
    if segments > 1 then
      a = segment_at
    end
    --@ if short
    local is_done = false
    --@ end
    for place = 1, segments do
      if segments > 1 or k == first then
        --@ include segment
      end
      --@ if short
      if is_short then
        -- DECIDE in a short way, if the state has its usual form.
        --@ paste short
      end
      if is_done then
        break
      end
      --@ end
      if place == 1 then
        --@ include read
      end

      -- DECIDE the charges of a segment.
      -- A copy, to restore if no charge of this segment changes the state.
      local $before = $state
      local clamped, kept = false, false
      --@ if holds
      local unsettled
      --@ end
      if $exists then
        -- Converts a state of another rule. Clamps a state from the future: a clock was set back,
        -- or a quota was lowered.
        --@ paste rebase
        --@ paste clamp
      end
      for _ = 1, repeats do
        -- One charge. `instant` is the instant at which it fits.
        local wait, instant = 0, nil
        --@ if short_answers
        n = n + 1
        reply[n] = false
        --@ end
        --@ if complete
        --@ include single_operation
        if paused and not blocked and op ~= 'refund' then
        --@ else
        --@ include single_check
        if paused then
        --@ end
          wait = format(type(wait) == 'number' and 'PAUSED %d:%d' or 'PAUSED %d:%s', paused, wait)
        end
        reply[n + 1] = wait
        n = n + WIDTH
      end
      if kept then
        changed = true
        if $exists then
          --@ paste owes
          -- From `expires_at` on, the state is equivalent to no state.
          --@ paste expires
        end
      else
        $state = $before
      end
      --@ paste flaw
    end

    -- WRITE the key.
    --@ include write
    if why then
      -- The key failed, and so do all its charges.
      --@ if short
      for i = start + (is_done and 1 or FIRST), n, is_done and 1 or STRIDE do
      --@ else
      for i = start + FIRST, n, STRIDE do
      --@ end
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
