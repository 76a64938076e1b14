-- expect: 7: 'apart_ema' reads p after the step, but the wrapper 'cautious_decay' around it
-- rule: adamw
-- with: apart_ema,cautious_decay
return wrapper {
  name = "apart_ema", state = { avg = zeros }, step = function()
    inner()
    avg = lerp(avg, p, 0.1)
  end,
}
