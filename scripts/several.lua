-- A call of a limiter of several quotas, all or nothing: every charge has a key for each. Keys may
-- come again in other company, so all charges are decided before anything is written.
--
-- A template, as single.lua.

--@ if any_text
local texts = redis.call('MGET', unpack(KEYS))
--@ end
local last, groups = 0, #KEYS / QUOTAS
-- By a key's name, the place of its first mention in KEYS; and by that place, what is known of it.
local known, saved = {}, {}
local changed_at, wiped_at, why_at, number_at, expires = {}, {}, {}, {}, {}
--@ if complete
local blocked_at = {}
--@ end
-- Where the answers of a group of charges begin in the reply.
local starts = {}

while last < groups do
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    --@ each
    local $state
    local slot_N = (k - 1) * QUOTAS + N
    if known[KEYS[slot_N]] then
      slot_N = known[KEYS[slot_N]]
      $state = $saved
    else
      local key, why, number, blocked = KEYS[slot_N], nil, nil, nil
      known[key] = slot_N
      --@ if text
      local text = texts[slot_N]
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
        -- It refuses checks alone.
        blocked_at[slot_N], why = blocked, nil
      end
      --@ end
      number_at[slot_N], why_at[slot_N] = number, why
      $saved = $state
    end
    --@ end
    starts[k] = n
    if segments > 1 then
      a = segment_at
    end
    for _ = 1, segments do
      if segments > 1 or k == first then
        --@ include segment
      end
      --@ each
      local clamped_N, kept_N = false, false
      --@ if holds
      local unsettled_N
      --@ end
      if $exists then
        --@ paste rebase
        --@ paste clamp
      end
      --@ end
      for _ = 1, repeats do
        local wait = 0
        --@ if complete
        --@ include several_operation
        --@ else
        --@ include several_check
        --@ end
        reply[n + 1] = wait
        n = n + WIDTH
      end
      -- A charge that fails under one quota takes nothing under the others.
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

for k = 1, groups do
  --@ each
  do
    local slot_N = (k - 1) * QUOTAS + N
    local key = KEYS[slot_N]
    if known[key] == slot_N then
      local $state = $saved
      local changed, wiped, why = changed_at[slot_N], wiped_at[slot_N], why_at[slot_N]
      local number, expires_at, blocked = number_at[slot_N], expires[slot_N], nil
      --@ if complete
      blocked = blocked_at[slot_N]
      --@ end
      --@ if text
      local text = texts[slot_N]
      --@ end
      --@ include write
      why_at[slot_N] = why
    end
  end
  --@ end
end
if next(why_at) then
  for k = 1, groups do
    -- The longest of several blocks, unless a key failed: texts compare so.
    local why
    --@ each
    do
      local own = why_at[known[KEYS[(k - 1) * QUOTAS + N]]]
      if own and (not why or own > why) then
        why = own
      end
    end
    --@ end
    if why then
      for i = starts[k] + 1, starts[k + 1], WIDTH do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
