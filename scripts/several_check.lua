-- A charge fits when it fits all quotas. What fits at an instant fits at every later one.
local fits_at, fits = now, true
--@ if own_terms
local in_time = true
--@ end
--@ each
local instant_N
do
  --@ paste fit
  --@ paste reply
end
if not instant_N then
  fits = false
elseif instant_N > fits_at then
  fits_at = instant_N
end
--@ if own_terms
in_time = in_time and instant_N and instant_N - now <= max_wait_N
--@ end
--@ end
if fits then
  wait = fits_at - now
  --@ if complete
  if op == 'estimate' then
    -- Nothing is taken.
  elseif cost > 0 then
  --@ else
  if cost > 0 then
  --@ end
    --@ if own_terms
    if in_time and wait <= max_wait then
    --@ else
    if wait <= max_wait then
    --@ end
      --@ each
      do
        instant_N, kept_N = fits_at, true
        --@ paste consume
      end
      --@ end
      -- The units are taken.
      wait = -1 - wait
    else
      --@ each
      kept_N = kept_N or clamped_N
      --@ end
    end
  end
end
