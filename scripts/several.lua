-- The loop. Every charge has a key for each quota, and all of them take it, or none. A key may
-- occur again beside other keys, so the script decides all charges before it writes.

--@ if any_text
-- The text of each key: false if it is absent, or of another type.
local texts = redis.call('MGET', unpack(KEYS))
--@ end
-- A group is the keys of one charge, QUOTAS of them. `last` is the last group that is done.
local last, groups = 0, #KEYS / QUOTAS
-- `known` maps a key's name to its slot: the place of its first mention in KEYS. All other tables
-- are by slot. `saved` has the state, 8 elements from 8 * slot on.
local known, saved = {}, {}
-- Write it? Empty it first? The error of its charges; its text, if that is a plain number; when its
-- state is equivalent to no state.
local changed_at, wiped_at, why_at, number_at, expires = {}, {}, {}, {}, {}
-- Its birth: the instant of its last reset.
local birth_at = {}
-- The end of its pause.
local paused_at = {}
-- The end of its block.
local blocked_at = {}
-- The place in the reply before the answers of a group.
local starts = {}

while last < groups do
  -- The next run: groups `first` to `last` have equal charges, in this many segments.
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    --@ each
    -- READ the state of quota N, unless its key was read before. `$exists` is nil if there is none.
    local $state
    local slot_N = (k - 1) * QUOTAS + N
    if known[KEYS[slot_N]] then
      slot_N = known[KEYS[slot_N]]
      $state = $saved
    else
      local key, why, number, blocked, paused, birth = KEYS[slot_N], nil, nil, nil, nil, nil
      known[key] = slot_N
      --@ if text
      local text = texts[slot_N]
      --@ end
      --@ include read
      if blocked then
        -- Not an error: the answer says which keys are blocked.
        blocked_at[slot_N], why = blocked, nil
      end
      number_at[slot_N], why_at[slot_N] = number, why
      birth_at[slot_N], paused_at[slot_N] = birth, paused
      $saved = $state
    end
    --@ end

    -- DECIDE the charges of the group. All groups of a run read the same segments.
    starts[k] = n
    if segments > 1 then
      a = segment_at
    end
    for _ = 1, segments do
      if segments > 1 or k == first then
        --@ include segment
      end
      -- Converts a state of another rule. Clamps a state from the future: a clock was set back,
      -- or a quota was lowered.
      --@ if any_holds
      local unsettled
      --@ end
      --@ each
      local clamped_N, kept_N = false, false
      if $exists then
        --@ paste rebase
        --@ paste clamp
      end
      --@ end
      for _ = 1, repeats do
        -- One charge. It fits quota 1 at `instant_1`, and so on.
        local wait = 0
        --@ if complete
        --@ include several_operation
        --@ else
        if next(blocked_at) then
          -- Element 0 tells if a key of this charge is blocked.
          blocked_at[0] = nil
          --@ each
          blocked_at[0] = blocked_at[0] or blocked_at[slot_N]
          --@ end
        end
        --@ include several_check
        --@ end
        --@ if complete
        if blocked_at[0] and op ~= 'refund' then
        --@ else
        if blocked_at[0] then
        --@ end
          local block_ends = 'BLOCKED'
          --@ each
          block_ends = format('%s %d', block_ends, blocked_at[slot_N] or 0)
          --@ end
          --@ if complete
          wait = op == 'penalize' and format('%s %d', block_ends, wait) or block_ends
          --@ else
          wait = block_ends
          --@ end
        end
        --@ if complete
        if next(paused_at) and op ~= 'refund' then
        --@ else
        if next(paused_at) then
        --@ end
          local pause_ends, last_end = 'PAUSED', 0
          --@ each
          pause_ends = format('%s %d', pause_ends, paused_at[slot_N] or 0)
          last_end = math.max(last_end, paused_at[slot_N] or 0)
          --@ end
          if last_end > 0 then
            wait = format(type(wait) == 'number' and '%s:%d' or '%s:%s', pause_ends, wait)
          end
        end
        reply[n + 1] = wait
        n = n + WIDTH
      end

      -- KEEP the states after the segment. If one key failed, the others stay as they were.
      local broken
      --@ each
      do
        local why
        --@ paste flaw
        why_at[slot_N] = why_at[slot_N] or why
        broken = broken or why_at[slot_N]
      end
      --@ end
      --@ each
      if kept_N and not broken then
        changed_at[slot_N] = true
        if $exists then
          --@ paste owes
          -- From `expires_at` on, the state is equivalent to no state.
          local expires_at
          --@ paste expires
          expires[slot_N] = expires_at
        end
        $saved = $state
      else
        $state = $saved
      end
      --@ end
    end
  end
end
starts[groups + 1] = n

-- WRITE each key once, at its slot.
for k = 1, groups do
  --@ each
  do
    local slot_N = (k - 1) * QUOTAS + N
    local key = KEYS[slot_N]
    if known[key] == slot_N then
      local $state = $saved
      local changed, wiped, why = changed_at[slot_N], wiped_at[slot_N], why_at[slot_N]
      local number, expires_at, blocked = number_at[slot_N], expires[slot_N], nil
      local birth, paused = birth_at[slot_N], paused_at[slot_N]
      --@ if complete
      blocked = blocked_at[slot_N]
      --@ end
      --@ if text
      local text, value = texts[slot_N], nil
      --@ end
      --@ include write
      why_at[slot_N] = why
    end
  end
  --@ end
end

-- REPORT the error of a key to all its charges.
if next(why_at) then
  for k = 1, groups do
    local why
    --@ each
    why = why or why_at[known[KEYS[(k - 1) * QUOTAS + N]]]
    --@ end
    if why then
      for i = starts[k] + 1, starts[k + 1], WIDTH do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
