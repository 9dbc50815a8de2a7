-- A call of a limiter of one quota: each key is read, decided and written, one after another.
--
-- A template: `README.md` says what the lines that begin with `--@` and the words that begin with
-- `$` stand for, and what is in KEYS, ARGV and the reply.

--@ if text
local texts = redis.call('MGET', unpack(KEYS))
--@ end
local last = 0

while last < #KEYS do
  local first, segments = last + 1, ARGV[a + 1] + 0
  last = last + ARGV[a]
  a = a + 2
  local segment_at = a
  for k = first, last do
    local key = KEYS[k]
    local $state
    local changed, wiped, why, number, expires_at, blocked
    --@ if text
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
      -- It refuses checks alone.
      why = nil
    end
    --@ end
    local start = n
    if segments > 1 then
      a = segment_at
    end
    for _ = 1, segments do
      if segments > 1 or k == first then
        --@ include segment
      end
      local $before = $state
      local clamped, kept = false, false
      --@ if holds
      local unsettled
      --@ end
      if $exists then
        --@ paste rebase
        --@ paste clamp
      end
      for _ = 1, repeats do
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
          --@ paste expires
        end
      else
        $state = $before
      end
    end
    --@ paste flaw
    --@ include write
    if why then
      for i = start + 1, n, WIDTH do
        reply[i] = why
      end
    end
  end
end
return cmsgpack.pack(reply)
