-- The loop. Each key is read, its charges are decided, and it is written once if they changed it.

--@ if text
-- What each key holds: false if it is absent, or of another type.
local texts = redis.call('MGET', unpack(KEYS))
--@ end
-- The last of the keys that are done.
local last = 0

while last < #KEYS do
  -- The next keys that are asked alike, from `first` to `last`, and how many segments each has.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    -- READ the state of a key. `$exists` is nil if there is none.
    local key = KEYS[k]
    local $state
    -- Whether the key is to be written, or emptied; why its charges fail; the number that it
    -- holds, if that is all; when its state is worth nothing; when its block ends; its birth,
    -- if it was reset.
    local changed, wiped, why, number, expires_at, blocked, birth
    --@ if text
    -- `none` is no state: a key that was made so that a cluster can move its slot.
    local text = texts[k]
    if text and text ~= 'none' then
      do
        --@ paste read
      end
      if not $exists then
        --@ include unread
      end
    end
    --@ else
    --@ paste load
    --@ end
    --@ if complete
    if blocked then
      -- A block fails checks alone, and those are answered below.
      why = nil
    end
    --@ end

    -- DECIDE the charges of the key. Keys that are asked alike read the same segments.
    local start = n
    if segments > 1 then
      a = segment_at
    end
    for _ = 1, segments do
      if segments > 1 or k == first then
        --@ include segment
      end
      -- As it was, if no charge of this segment is kept. What is kept is written at the end.
      local $before = $state
      local clamped, kept = false, false
      --@ if holds
      local unsettled
      --@ end
      if $exists then
        -- A state of another rule is brought under this one. A state from the future is clamped:
        -- a clock was set back, or a quota was lowered.
        --@ paste rebase
        --@ paste clamp
      end
      for _ = 1, repeats do
        -- One charge. `instant` is when it fits.
        local wait, instant = 0, nil
        --@ if complete
        --@ include single_operation
        --@ else
        --@ include single_check
        --@ end
        reply[n + 1] = wait
        n = n + WIDTH
      end
      if kept then
        changed = true
        if $exists then
          --@ paste owes
          -- From `expires_at` on, the state decides like no state.
          --@ paste expires
        end
      else
        $state = $before
      end
    end
    --@ paste flaw

    -- WRITE the key.
    --@ include write
    if why then
      -- All charges of this key failed, whatever was decided.
      for i = start + 1, n, WIDTH do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
